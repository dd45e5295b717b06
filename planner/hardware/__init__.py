"""What engines can do: iteration times and KV caches, from data sheets, from published constants or as measured."""
