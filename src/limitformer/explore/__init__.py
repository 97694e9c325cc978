"""A local page on which a transformer's limits follow its sliders: `limitformer explore`.

settings.py   what can be moved, its range, and the query string
network.py    settings -> inputs, network, TOML and Python, and back
kernels.py    token kernels block by block, without compilation
twins.py      finite networks block by block, many at once
runs.py       the two carried on from where the last move left them
panels.py     what the page shows, as JSON
server.py     loopback HTTP
page.html, style.css, plots.js, explore.js
"""
