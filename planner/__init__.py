"""What helps to plan a fleet and its policy. So far: `quality`, what the quantized tier's answers lose."""
