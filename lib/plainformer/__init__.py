"""The Transformer from first principles, in torch alone.

One idea, one module; the chapter of the same name derives it.
Nothing here prints, picks a device or downloads.
"""
