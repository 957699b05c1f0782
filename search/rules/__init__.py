"""The fusion rules of other compilers as policies, on this code generator."""
