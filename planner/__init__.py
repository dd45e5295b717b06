"""What helps to plan a fleet and its policy: what it will need, and what the quantized tier's answers lose."""
