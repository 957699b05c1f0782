// __nv_bfloat16 lives in simt.h, which is included before everything else.
