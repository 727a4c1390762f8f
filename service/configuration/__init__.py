"""How the knobs of service/settings.py get their values: read, checked, explained."""
