"""How fast the decoder is, and the plain decoder that it is measured and checked against."""
