r"""Functions of tensors, without parameters, that the modules are made of."""
