"""Results turned into compact picture data and the sentence that says what the picture shows.

Pure and torch-free: a value object or numbers in, plain data out (text, numbers, packed arrays). A widget
only hands them on, so every number on screen is computed, rounded and worded here or deeper.
"""
