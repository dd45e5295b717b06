"""The commands of the command line, a file for each group. They wire; what they do stands in the packages below."""
