; A builtin that calls another callable, with a handler for what it raises: METH_FASTCALL | METH_KEYWORDS, whose `self` is
; the tuple of the two. The handler is called with the exception and then the same arguments; what it returns or raises is
; what the call returns or raises.

declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_NormalizeException(ptr, ptr, ptr)
declare i32 @PyException_SetTraceback(ptr, ptr)

define ptr @af_guarded(ptr %self, ptr %args, i64 %nargs, ptr %names) nounwind {
entry:
  %function = call ptr @PyTuple_GetItem(ptr %self, i64 0)
  %result = call ptr @PyObject_Vectorcall(ptr %function, ptr %args, i64 %nargs, ptr %names)
  %raised = icmp eq ptr %result, null
  br i1 %raised, label %fetch, label %good
good:
  ret ptr %result
fetch:
  %type.at = alloca ptr
  %value.at = alloca ptr
  %trace.at = alloca ptr
  call void @PyErr_Fetch(ptr %type.at, ptr %value.at, ptr %trace.at)
  call void @PyErr_NormalizeException(ptr %type.at, ptr %value.at, ptr %trace.at)
  %value = load ptr, ptr %value.at
  %trace = load ptr, ptr %trace.at
  %untraced = icmp eq ptr %trace, null
  br i1 %untraced, label %count, label %mark
mark:
  %marked = call i32 @PyException_SetTraceback(ptr %value, ptr %trace)
  call void @Py_DecRef(ptr %trace)
  br label %count
count:
  %unnamed = icmp eq ptr %names, null
  br i1 %unnamed, label %call, label %measure
measure:
  %length = call i64 @PyTuple_Size(ptr %names)
  br label %call
call:
  %named = phi i64 [ 0, %count ], [ %length, %measure ]
  %given = add i64 %nargs, %named
  %passed.count = add i64 %given, 1
  %passed = alloca ptr, i64 %passed.count
  store ptr %value, ptr %passed
  %rest = getelementptr ptr, ptr %passed, i64 1
  %bytes = shl i64 %given, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %rest, ptr %args, i64 %bytes, i1 false)
  %positional = add i64 %nargs, 1
  %handler = call ptr @PyTuple_GetItem(ptr %self, i64 1)
  %told = call ptr @PyObject_Vectorcall(ptr %handler, ptr %passed, i64 %positional, ptr %names)
  %type = load ptr, ptr %type.at
  call void @Py_DecRef(ptr %type)
  call void @Py_DecRef(ptr %value)
  ret ptr %told
}
