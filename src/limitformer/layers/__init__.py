"""What a network is: one file per family, each layer's kernel map and finite twin side by side."""
