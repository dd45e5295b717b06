"""The configuration: YAML text to frozen settings, with every fault named at its line. Opens no file."""
