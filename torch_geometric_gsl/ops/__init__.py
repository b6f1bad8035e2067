r"""Functions of tensors, without parameters, from which the modules are built."""
