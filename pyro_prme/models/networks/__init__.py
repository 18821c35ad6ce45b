"""Networks: layers and the decoder f, and the inference network g."""
