"""The text that baton-tiny learns from: small conversations, written by a grammar and a seed."""
