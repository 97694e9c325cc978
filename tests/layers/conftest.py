def pytest_configure(config):
    config.addinivalue_line("markers", "zoo: the laws over the whole zoo of networks")
