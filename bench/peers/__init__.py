"""Those that are compared: a file for each, which starts it before the same engines and says what its processes are."""
