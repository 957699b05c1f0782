; Calls with structured arguments: the arrays are taken out of plain tuples, lists and dicts, and the results put into
; such, without Python code. A tree is data, 64-bit words in pre-order (treedata.py writes it): a kind, then
;   0 array: nothing; 1 array that NumPy would give as a scalar: the empty tuple; 2 a value of the same type and equal:
;   the value;
;   3 tuple, 4 list: its type, the number of children, the children; 5 dict: the same, then the keys, the children;
;   6 a float of the same bits, or the same object: the float.

declare i64 @PyTuple_Size(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare i64 @PyList_Size(ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare ptr @PyList_New(i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare ptr @PyDict_New()
declare i64 @PyDict_Size(ptr)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare i32 @PyDict_SetItem(ptr, ptr, ptr)
declare ptr @PyObject_GetItem(ptr, ptr)
declare i32 @PyObject_RichCompareBool(ptr, ptr, i32)
declare double @PyFloat_AsDouble(ptr)
declare void @PyErr_Clear()

; like af_call, but takes the arguments and gives the results in their trees
define ptr @af_call_tree(ptr %self, ptr %args, i64 %nargs) nounwind {
entry:
  %context = call ptr @PyCapsule_GetPointer(ptr %self, ptr null)
  %inputs = load i64, ptr %context
  %arity.slot = getelementptr i64, ptr %context, i64 14
  %arity = load i64, ptr %arity.slot
  %in.slot = getelementptr i64, ptr %context, i64 15
  %in.tree = load ptr, ptr %in.slot
  %out.slot = getelementptr i64, ptr %context, i64 16
  %out.tree = load ptr, ptr %out.slot
  %sentinel.slot = getelementptr i64, ptr %context, i64 11
  %sentinel = load ptr, ptr %sentinel.slot
  %leaves = alloca ptr, i64 %inputs
  %node = alloca ptr
  %taken = alloca ptr
  store ptr %in.tree, ptr %node
  store ptr %leaves, ptr %taken
  %counted = icmp eq i64 %nargs, %arity
  br i1 %counted, label %check, label %refuse
check:
  %i = phi i64 [ 0, %entry ], [ %i.next, %one ]
  %end = icmp eq i64 %i, %arity
  br i1 %end, label %run, label %one
one:
  %arg.at = getelementptr ptr, ptr %args, i64 %i
  %arg = load ptr, ptr %arg.at
  %good = call i1 @tree_take(ptr %node, ptr %taken, ptr %arg)
  %i.next = add i64 %i, 1
  br i1 %good, label %check, label %refuse
refuse:
  call void @release_leaves(ptr %leaves, ptr %taken)
  call void @Py_IncRef(ptr %sentinel)
  ret ptr %sentinel
run:
  %outputs = call ptr @entry(ptr %self, ptr %leaves, i64 %inputs, i1 false, i1 false)
  call void @release_leaves(ptr %leaves, ptr %taken)
  %failed = icmp eq ptr %outputs, null
  %refused = icmp eq ptr %outputs, %sentinel
  %as.it.is = or i1 %failed, %refused
  br i1 %as.it.is, label %same, label %pack
same:
  ret ptr %outputs
pack:
  %number = alloca i64
  store ptr %out.tree, ptr %node
  store i64 0, ptr %number
  %result = call ptr @tree_build(ptr %node, ptr %number, ptr %outputs)
  call void @Py_DecRef(ptr %outputs)
  ret ptr %result
}

define internal void @release_leaves(ptr %leaves, ptr %taken) nounwind {
entry:
  %stop = load ptr, ptr %taken
  br label %check
check:
  %at = phi ptr [ %leaves, %entry ], [ %next, %one ]
  %end = icmp eq ptr %at, %stop
  br i1 %end, label %done, label %one
one:
  %object = load ptr, ptr %at
  call void @Py_DecRef(ptr %object)
  %next = getelementptr ptr, ptr %at, i64 1
  br label %check
done:
  ret void
}

; takes the arrays of `object` as the tree at the cursor `node` says, with references of their own; moves both cursors
define internal i1 @tree_take(ptr %node, ptr %taken, ptr %object) nounwind {
entry:
  %at = load ptr, ptr %node
  %kind = load i64, ptr %at
  %first = getelementptr i64, ptr %at, i64 1
  %second = getelementptr i64, ptr %at, i64 2
  switch i64 %kind, label %container [ i64 0, label %array
                                       i64 1, label %scalar
                                       i64 2, label %static
                                       i64 6, label %static ]
array:
  store ptr %first, ptr %node
  br label %leaf
scalar:
  store ptr %second, ptr %node
  br label %leaf
leaf:
  %slot = load ptr, ptr %taken
  store ptr %object, ptr %slot
  call void @Py_IncRef(ptr %object)
  %slot.next = getelementptr ptr, ptr %slot, i64 1
  store ptr %slot.next, ptr %taken
  ret i1 true
static:
  store ptr %second, ptr %node
  %required = load ptr, ptr %first
  %identical = icmp eq ptr %required, %object
  br i1 %identical, label %yes, label %kin
kin:
  %required.type.field = getelementptr i8, ptr %required, i64 ${type}
  %required.type = load ptr, ptr %required.type.field
  %given.type.field = getelementptr i8, ptr %object, i64 ${type}
  %given.type = load ptr, ptr %given.type.field
  %akin = icmp eq ptr %required.type, %given.type
  br i1 %akin, label %equal, label %no
equal:
  ; 2 is Py_EQ
  %compared = call i32 @PyObject_RichCompareBool(ptr %required, ptr %object, i32 2)
  switch i32 %compared, label %clear [ i32 0, label %no
                                       i32 1, label %alike ]
alike:
  %float = icmp eq i64 %kind, 6
  br i1 %float, label %signs, label %yes
signs:
  ; 0.0 equals -0.0, but is another value
  %required.number = call double @PyFloat_AsDouble(ptr %required)
  %given.number = call double @PyFloat_AsDouble(ptr %object)
  %required.bits = bitcast double %required.number to i64
  %given.bits = bitcast double %given.number to i64
  %bits.same = icmp eq i64 %required.bits, %given.bits
  br i1 %bits.same, label %yes, label %no
container:
  %type.field = getelementptr i8, ptr %object, i64 ${type}
  %type = load ptr, ptr %type.field
  %type.wanted = load ptr, ptr %first
  %type.same = icmp eq ptr %type, %type.wanted
  br i1 %type.same, label %sized, label %no
sized:
  %count = load i64, ptr %second
  %third = getelementptr i64, ptr %at, i64 3
  switch i64 %kind, label %dict [ i64 3, label %tuple
                                  i64 4, label %list ]
tuple:
  %tuple.size = call i64 @PyTuple_Size(ptr %object)
  br label %compare
list:
  %list.size = call i64 @PyList_Size(ptr %object)
  br label %compare
dict:
  %dict.size = call i64 @PyDict_Size(ptr %object)
  %behind.keys = getelementptr i64, ptr %third, i64 %count
  br label %compare
compare:
  %size = phi i64 [ %tuple.size, %tuple ], [ %list.size, %list ], [ %dict.size, %dict ]
  %children = phi ptr [ %third, %tuple ], [ %third, %list ], [ %behind.keys, %dict ]
  store ptr %children, ptr %node
  %size.same = icmp eq i64 %size, %count
  br i1 %size.same, label %check, label %no
check:
  %i = phi i64 [ 0, %compare ], [ %i.next, %inside ]
  %end = icmp eq i64 %i, %count
  br i1 %end, label %yes, label %child
child:
  switch i64 %kind, label %from.dict [ i64 3, label %from.tuple
                                       i64 4, label %from.list ]
from.tuple:
  %tuple.item = call ptr @PyTuple_GetItem(ptr %object, i64 %i)
  br label %found
from.list:
  %list.item = call ptr @PyList_GetItem(ptr %object, i64 %i)
  br label %found
from.dict:
  %key.at = getelementptr ptr, ptr %third, i64 %i
  %key = load ptr, ptr %key.at
  %dict.item = call ptr @PyDict_GetItemWithError(ptr %object, ptr %key)
  br label %found
found:
  %item = phi ptr [ %tuple.item, %from.tuple ], [ %list.item, %from.list ], [ %dict.item, %from.dict ]
  %missing = icmp eq ptr %item, null
  br i1 %missing, label %clear, label %inside
inside:
  %good = call i1 @tree_take(ptr %node, ptr %taken, ptr %item)
  %i.next = add i64 %i, 1
  br i1 %good, label %check, label %no
clear:
  call void @PyErr_Clear()
  br label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; a new object as the tree at the cursor says, with the items of the tuple `outputs` from `number` on; null on error
define internal ptr @tree_build(ptr %node, ptr %number, ptr %outputs) nounwind {
entry:
  %at = load ptr, ptr %node
  %kind = load i64, ptr %at
  %first = getelementptr i64, ptr %at, i64 1
  %second = getelementptr i64, ptr %at, i64 2
  switch i64 %kind, label %container [ i64 0, label %array
                                       i64 1, label %scalar
                                       i64 2, label %static
                                       i64 6, label %static ]
array:
  store ptr %first, ptr %node
  %array.item = call ptr @next_output(ptr %number, ptr %outputs)
  call void @Py_IncRef(ptr %array.item)
  ret ptr %array.item
scalar:
  store ptr %second, ptr %node
  %nothing = load ptr, ptr %first
  %scalar.array = call ptr @next_output(ptr %number, ptr %outputs)
  %scalar.item = call ptr @PyObject_GetItem(ptr %scalar.array, ptr %nothing)
  ret ptr %scalar.item
static:
  store ptr %second, ptr %node
  %value = load ptr, ptr %first
  call void @Py_IncRef(ptr %value)
  ret ptr %value
container:
  %count = load i64, ptr %second
  %third = getelementptr i64, ptr %at, i64 3
  switch i64 %kind, label %dict [ i64 3, label %tuple
                                  i64 4, label %list ]
tuple:
  %tuple.new = call ptr @PyTuple_New(i64 %count)
  br label %made
list:
  %list.new = call ptr @PyList_New(i64 %count)
  br label %made
dict:
  %dict.new = call ptr @PyDict_New()
  %behind.keys = getelementptr i64, ptr %third, i64 %count
  br label %made
made:
  %new = phi ptr [ %tuple.new, %tuple ], [ %list.new, %list ], [ %dict.new, %dict ]
  %children = phi ptr [ %third, %tuple ], [ %third, %list ], [ %behind.keys, %dict ]
  store ptr %children, ptr %node
  %new.failed = icmp eq ptr %new, null
  br i1 %new.failed, label %null, label %check
check:
  %i = phi i64 [ 0, %made ], [ %i.next, %put ]
  %end = icmp eq i64 %i, %count
  br i1 %end, label %done, label %child
done:
  ret ptr %new
child:
  %item = call ptr @tree_build(ptr %node, ptr %number, ptr %outputs)
  %item.failed = icmp eq ptr %item, null
  br i1 %item.failed, label %drop, label %place
place:
  switch i64 %kind, label %into.dict [ i64 3, label %into.tuple
                                       i64 4, label %into.list ]
into.tuple:
  %tuple.set = call i32 @PyTuple_SetItem(ptr %new, i64 %i, ptr %item)
  br label %put
into.list:
  %list.set = call i32 @PyList_SetItem(ptr %new, i64 %i, ptr %item)
  br label %put
into.dict:
  %key.at = getelementptr ptr, ptr %third, i64 %i
  %key = load ptr, ptr %key.at
  %dict.set = call i32 @PyDict_SetItem(ptr %new, ptr %key, ptr %item)
  call void @Py_DecRef(ptr %item)
  %dict.failed = icmp ne i32 %dict.set, 0
  br i1 %dict.failed, label %drop, label %put
put:
  %i.next = add i64 %i, 1
  br label %check
drop:
  call void @Py_DecRef(ptr %new)
  br label %null
null:
  ret ptr null
}

; borrowed
define internal ptr @next_output(ptr %number, ptr %outputs) nounwind {
  %n = load i64, ptr %number
  %after = add i64 %n, 1
  store i64 %after, ptr %number
  %item = call ptr @PyTuple_GetItem(ptr %outputs, i64 %n)
  ret ptr %item
}
