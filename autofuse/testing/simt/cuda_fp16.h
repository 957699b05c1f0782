// __half lives in simt.h, which is included before everything else.
