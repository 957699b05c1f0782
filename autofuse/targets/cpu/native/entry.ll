; The Python entry: METH_FASTCALL functions that check NumPy arrays, allocate outputs, run the driver and return.
;
; `self` is a capsule over a context, an array of 64-bit slots (entry.py fills it, in the order of its _SLOTS):
;    0 inputs           4 program          8 arena lock      12 outputs that have arrays of their own
;    1 outputs          5 arena bytes      9 release the GIL 13 some outputs are written into inputs
;    2 input records    6 arena alignment 10 numpy.ndarray
;    3 output records   7 free arenas     11 NotImplemented
;   14 arguments       15 their trees     16 the tree of the result (see tree.ll)
; A record is nine slots: descr, nd, dimensions, bytes, required flags, aliased input or -1, the shape and dtype to
; allocate with, and the function that allocates. ${head} is the size of PyObject_HEAD; the array fields after it are those of NumPy's stable ABI.

declare ptr @PyCapsule_GetPointer(ptr, ptr)
declare ptr @PyCapsule_GetContext(ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyErr_NoMemory()
declare ptr @PyErr_Occurred()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @malloc(i64)
declare i32 @madvise(ptr, i64, i32)

; outputs freshly allocated, results in a tuple
define ptr @af_call(ptr %self, ptr %args, i64 %nargs) nounwind {
  %result = call ptr @entry(ptr %self, ptr %args, i64 %nargs, i1 false, i1 false)
  ret ptr %result
}

; one output, freshly allocated, returned as it is
define ptr @af_call_one(ptr %self, ptr %args, i64 %nargs) nounwind {
  %result = call ptr @entry(ptr %self, ptr %args, i64 %nargs, i1 false, i1 true)
  ret ptr %result
}

; outputs given after the inputs, results in a tuple
define ptr @af_call_into(ptr %self, ptr %args, i64 %nargs) nounwind {
  %result = call ptr @entry(ptr %self, ptr %args, i64 %nargs, i1 true, i1 false)
  ret ptr %result
}

; capsule destructor: the capsule's context is a Python object that owns everything the call needs
define void @af_capsule_release(ptr %capsule) nounwind {
  %owner = call ptr @PyCapsule_GetContext(ptr %capsule)
  call void @Py_DecRef(ptr %owner)
  ret void
}

; frees the arenas kept for reuse
define void @af_arena_free(ptr %context) nounwind {
entry:
  %head.slot = getelementptr i64, ptr %context, i64 7
  %head = load ptr, ptr %head.slot
  store ptr null, ptr %head.slot
  br label %check
check:
  %node = phi ptr [ %head, %entry ], [ %next, %one ]
  %end = icmp eq ptr %node, null
  br i1 %end, label %done, label %one
one:
  %next = load ptr, ptr %node
  call void @arena_destroy(ptr %node)
  br label %check
done:
  ret void
}

; whether `object` is an array exactly as its record says; stores its data pointer
define internal i1 @accept(ptr %object, ptr %record, ptr %ndarray, ptr %pointer) alwaysinline nounwind {
entry:
  %type.field = getelementptr i8, ptr %object, i64 ${type}
  %type = load ptr, ptr %type.field
  %type.same = icmp eq ptr %type, %ndarray
  br i1 %type.same, label %typed, label %no
typed:
  %data.field = getelementptr i8, ptr %object, i64 ${data}
  %data = load ptr, ptr %data.field
  store ptr %data, ptr %pointer
  %descr.field = getelementptr i8, ptr %object, i64 ${descr}
  %descr = load ptr, ptr %descr.field
  %descr.wanted = load ptr, ptr %record
  %descr.same = icmp eq ptr %descr, %descr.wanted
  %nd.field = getelementptr i8, ptr %object, i64 ${nd}
  %nd.narrow = load i32, ptr %nd.field
  %nd = sext i32 %nd.narrow to i64
  %nd.slot = getelementptr i64, ptr %record, i64 1
  %nd.wanted = load i64, ptr %nd.slot
  %nd.same = icmp eq i64 %nd, %nd.wanted
  %flags.field = getelementptr i8, ptr %object, i64 ${flags}
  %flags.narrow = load i32, ptr %flags.field
  %flags = zext i32 %flags.narrow to i64
  %flags.slot = getelementptr i64, ptr %record, i64 4
  %flags.wanted = load i64, ptr %flags.slot
  %flags.met = and i64 %flags, %flags.wanted
  %flags.same = icmp eq i64 %flags.met, %flags.wanted
  %same.1 = and i1 %descr.same, %nd.same
  %same.2 = and i1 %same.1, %flags.same
  br i1 %same.2, label %shaped, label %no
shaped:
  %dims.field = getelementptr i8, ptr %object, i64 ${dimensions}
  %dims = load ptr, ptr %dims.field
  %dims.slot = getelementptr i64, ptr %record, i64 2
  %dims.wanted = load ptr, ptr %dims.slot
  br label %check
check:
  %i = phi i64 [ 0, %shaped ], [ %i.next, %next ]
  %end = icmp eq i64 %i, %nd
  br i1 %end, label %yes, label %compare
compare:
  %dim.at = getelementptr i64, ptr %dims, i64 %i
  %dim = load i64, ptr %dim.at
  %wanted.at = getelementptr i64, ptr %dims.wanted, i64 %i
  %wanted = load i64, ptr %wanted.at
  %dim.same = icmp eq i64 %dim, %wanted
  br i1 %dim.same, label %next, label %no
next:
  %i.next = add i64 %i, 1
  br label %check
yes:
  ret i1 true
no:
  ret i1 false
}

define internal i1 @overlap(ptr %a, ptr %a.record, ptr %b, ptr %b.record) nounwind {
  %a.bytes.at = getelementptr i64, ptr %a.record, i64 3
  %a.bytes = load i64, ptr %a.bytes.at
  %b.bytes.at = getelementptr i64, ptr %b.record, i64 3
  %b.bytes = load i64, ptr %b.bytes.at
  %a.end = getelementptr i8, ptr %a, i64 %a.bytes
  %b.end = getelementptr i8, ptr %b, i64 %b.bytes
  %a.some = icmp ne i64 %a.bytes, 0
  %b.some = icmp ne i64 %b.bytes, 0
  %a.before = icmp ult ptr %a, %b.end
  %b.before = icmp ult ptr %b, %a.end
  %some = and i1 %a.some, %b.some
  %cross = and i1 %a.before, %b.before
  %result = and i1 %some, %cross
  ret i1 %result
}

; whether memory that the call writes is also some other argument: output k against the inputs, but not the one it is
; written back to, and against the outputs before it. `pointers` holds the inputs' data, then the outputs'.
define internal i1 @conflict(ptr %context, ptr %pointers, i1 %into) noinline nounwind {
entry:
  %inputs = load i64, ptr %context
  %outputs.slot = getelementptr i64, ptr %context, i64 1
  %outputs = load i64, ptr %outputs.slot
  %in.records.slot = getelementptr i64, ptr %context, i64 2
  %in.records = load ptr, ptr %in.records.slot
  %out.records.slot = getelementptr i64, ptr %context, i64 3
  %out.records = load ptr, ptr %out.records.slot
  br label %out.check
out.check:
  %k = phi i64 [ 0, %entry ], [ %k.next, %out.next ]
  %out.end = icmp eq i64 %k, %outputs
  br i1 %out.end, label %no, label %out
out:
  %number = add i64 %inputs, %k
  %out.record = getelementptr [9 x i64], ptr %out.records, i64 %k
  %alias.slot = getelementptr i64, ptr %out.record, i64 5
  %alias = load i64, ptr %alias.slot
  %aliased = icmp sge i64 %alias, 0
  %given = or i1 %aliased, %into
  %mine.at = getelementptr ptr, ptr %pointers, i64 %number
  %mine = load ptr, ptr %mine.at
  br i1 %given, label %other.check, label %out.next
other.check:
  %j = phi i64 [ 0, %out ], [ %j.next, %other.next ]
  %other.end = icmp eq i64 %j, %number
  br i1 %other.end, label %out.next, label %other
other:
  %is.input = icmp ult i64 %j, %inputs
  %j.out = sub i64 %j, %inputs
  %in.record = getelementptr [9 x i64], ptr %in.records, i64 %j
  %before.record = getelementptr [9 x i64], ptr %out.records, i64 %j.out
  %other.record = select i1 %is.input, ptr %in.record, ptr %before.record
  %other.at = getelementptr ptr, ptr %pointers, i64 %j
  %other.data = load ptr, ptr %other.at
  %crosses = call i1 @overlap(ptr %mine, ptr %out.record, ptr %other.data, ptr %other.record)
  %own = icmp eq i64 %j, %alias
  %not.own = xor i1 %own, true
  %bad = and i1 %crosses, %not.own
  br i1 %bad, label %yes, label %other.next
other.next:
  %j.next = add i64 %j, 1
  br label %other.check
out.next:
  %k.next = add i64 %k, 1
  br label %out.check
yes:
  ret i1 true
no:
  ret i1 false
}

define internal ptr @entry(ptr %self, ptr %args, i64 %nargs, i1 %into, i1 %single) nounwind {
entry:
  %context = call ptr @PyCapsule_GetPointer(ptr %self, ptr null)
  %inputs = load i64, ptr %context
  %outputs.slot = getelementptr i64, ptr %context, i64 1
  %outputs = load i64, ptr %outputs.slot
  %ndarray.slot = getelementptr i64, ptr %context, i64 10
  %ndarray = load ptr, ptr %ndarray.slot
  %own.slot = getelementptr i64, ptr %context, i64 12
  %own = load i64, ptr %own.slot
  %extra = select i1 %into, i64 %own, i64 0
  %expected = add i64 %inputs, %extra
  %counted = icmp eq i64 %nargs, %expected
  br i1 %counted, label %start, label %sentinel

start:
  %values = add i64 %inputs, %outputs
  %pointers = alloca ptr, i64 %values
  %objects = alloca ptr, i64 %outputs
  %out.pointers = getelementptr ptr, ptr %pointers, i64 %inputs
  %in.records.slot = getelementptr i64, ptr %context, i64 2
  %in.records = load ptr, ptr %in.records.slot
  %out.records.slot = getelementptr i64, ptr %context, i64 3
  %out.records = load ptr, ptr %out.records.slot
  br label %in.check
in.check:
  %i = phi i64 [ 0, %start ], [ %i.next, %in.next ]
  %in.end = icmp eq i64 %i, %inputs
  br i1 %in.end, label %out.check, label %in
in:
  %in.object.at = getelementptr ptr, ptr %args, i64 %i
  %in.object = load ptr, ptr %in.object.at
  %in.record = getelementptr [9 x i64], ptr %in.records, i64 %i
  %in.pointer = getelementptr ptr, ptr %pointers, i64 %i
  %in.good = call i1 @accept(ptr %in.object, ptr %in.record, ptr %ndarray, ptr %in.pointer)
  br i1 %in.good, label %in.next, label %sentinel
in.next:
  %i.next = add i64 %i, 1
  br label %in.check

out.check:
  %k = phi i64 [ 0, %in.check ], [ %k.next, %out.next ]
  %cursor = phi i64 [ %inputs, %in.check ], [ %cursor.next, %out.next ]
  %out.end = icmp eq i64 %k, %outputs
  br i1 %out.end, label %collected, label %out
out:
  %record = getelementptr [9 x i64], ptr %out.records, i64 %k
  %out.pointer = getelementptr ptr, ptr %out.pointers, i64 %k
  %alias.slot = getelementptr i64, ptr %record, i64 5
  %alias = load i64, ptr %alias.slot
  %aliased = icmp sge i64 %alias, 0
  br i1 %aliased, label %out.alias, label %out.own
out.alias:
  %alias.object.at = getelementptr ptr, ptr %args, i64 %alias
  %alias.object = load ptr, ptr %alias.object.at
  %alias.pointer.at = getelementptr ptr, ptr %pointers, i64 %alias
  %alias.pointer = load ptr, ptr %alias.pointer.at
  store ptr %alias.pointer, ptr %out.pointer
  call void @Py_IncRef(ptr %alias.object)
  br label %out.next
out.own:
  br i1 %into, label %out.given, label %out.fresh
out.given:
  %given.at = getelementptr ptr, ptr %args, i64 %cursor
  %given.object = load ptr, ptr %given.at
  %given.good = call i1 @accept(ptr %given.object, ptr %record, ptr %ndarray, ptr %out.pointer)
  %cursor.given = add i64 %cursor, 1
  br i1 %given.good, label %out.taken, label %undo
out.taken:
  call void @Py_IncRef(ptr %given.object)
  br label %out.next
out.fresh:
  %empty.slot = getelementptr i64, ptr %record, i64 8
  %empty = load ptr, ptr %empty.slot
  %empty.args = getelementptr i64, ptr %record, i64 6
  %fresh.object = call ptr @PyObject_Vectorcall(ptr %empty, ptr %empty.args, i64 2, ptr null)
  %fresh.failed = icmp eq ptr %fresh.object, null
  br i1 %fresh.failed, label %undo, label %out.allocated
out.allocated:
  %fresh.data.field = getelementptr i8, ptr %fresh.object, i64 ${data}
  %fresh.data = load ptr, ptr %fresh.data.field
  store ptr %fresh.data, ptr %out.pointer
  br label %out.next
out.next:
  %object = phi ptr [ %alias.object, %out.alias ], [ %given.object, %out.taken ], [ %fresh.object, %out.allocated ]
  %cursor.next = phi i64 [ %cursor, %out.alias ], [ %cursor.given, %out.taken ], [ %cursor, %out.allocated ]
  %object.at = getelementptr ptr, ptr %objects, i64 %k
  store ptr %object, ptr %object.at
  %k.next = add i64 %k, 1
  br label %out.check

collected:
  %aliases.slot = getelementptr i64, ptr %context, i64 13
  %aliases = load i64, ptr %aliases.slot
  %some.alias = icmp ne i64 %aliases, 0
  %shared = or i1 %some.alias, %into
  br i1 %shared, label %shared.check, label %run
shared.check:
  %bad = call i1 @conflict(ptr %context, ptr %pointers, i1 %into)
  br i1 %bad, label %undo, label %run

run:
  %arena.bytes.slot = getelementptr i64, ptr %context, i64 5
  %arena.bytes = load i64, ptr %arena.bytes.slot
  %no.arena = icmp eq i64 %arena.bytes, 0
  br i1 %no.arena, label %launch, label %take.arena
take.arena:
  %node = call ptr @arena_take(ptr %context)
  %node.failed = icmp eq ptr %node, null
  br i1 %node.failed, label %no.memory, label %have.arena
no.memory:
  %ignored = call ptr @PyErr_NoMemory()
  br label %undo
have.arena:
  %node.data.at = getelementptr ptr, ptr %node, i64 1
  %node.data = load ptr, ptr %node.data.at
  br label %launch
launch:
  %held = phi ptr [ null, %run ], [ %node, %have.arena ]
  %arena = phi ptr [ null, %run ], [ %node.data, %have.arena ]
  %program.slot = getelementptr i64, ptr %context, i64 4
  %program = load ptr, ptr %program.slot
  %release.slot = getelementptr i64, ptr %context, i64 9
  %release = load i64, ptr %release.slot
  %keep = icmp eq i64 %release, 0
  br i1 %keep, label %run.held, label %run.released
run.held:
  %stopped.held = call i64 @af_run(ptr %program, ptr %pointers, ptr %arena, ptr null)
  br label %ran
run.released:
  %thread = call ptr @PyEval_SaveThread()
  %stopped.released = call i64 @af_run(ptr %program, ptr %pointers, ptr %arena, ptr null)
  call void @PyEval_RestoreThread(ptr %thread)
  br label %ran
ran:
  %error.raised = call ptr @PyErr_Occurred()
  %interrupted = icmp ne ptr %error.raised, null
  br i1 %no.arena, label %ended, label %give.arena
give.arena:
  call void @arena_give(ptr %context, ptr %held)
  br label %ended
ended:
  br i1 %interrupted, label %undo, label %results

results:
  br i1 %single, label %one, label %many
one:
  %first = load ptr, ptr %objects
  ret ptr %first
many:
  %tuple = call ptr @PyTuple_New(i64 %outputs)
  %tuple.failed = icmp eq ptr %tuple, null
  br i1 %tuple.failed, label %undo, label %fill.check
fill.check:
  %f = phi i64 [ 0, %many ], [ %f.next, %fill ]
  %fill.end = icmp eq i64 %f, %outputs
  br i1 %fill.end, label %filled, label %fill
fill:
  %item.at = getelementptr ptr, ptr %objects, i64 %f
  %item = load ptr, ptr %item.at
  %set = call i32 @PyTuple_SetItem(ptr %tuple, i64 %f, ptr %item)
  %f.next = add i64 %f, 1
  br label %fill.check
filled:
  ret ptr %tuple

; give back the outputs collected so far; null after a Python error, the sentinel for arguments to be converted
undo:
  %collected.count = phi i64 [ %k, %out.given ], [ %k, %out.fresh ], [ %outputs, %shared.check ],
                             [ %outputs, %no.memory ], [ %outputs, %ended ], [ %outputs, %many ]
  %raised = phi i1 [ false, %out.given ], [ true, %out.fresh ], [ false, %shared.check ],
                   [ true, %no.memory ], [ true, %ended ], [ true, %many ]
  br label %undo.check
undo.check:
  %u = phi i64 [ 0, %undo ], [ %u.next, %undo.one ]
  %undo.end = icmp eq i64 %u, %collected.count
  br i1 %undo.end, label %undone, label %undo.one
undo.one:
  %undo.at = getelementptr ptr, ptr %objects, i64 %u
  %undo.object = load ptr, ptr %undo.at
  call void @Py_DecRef(ptr %undo.object)
  %u.next = add i64 %u, 1
  br label %undo.check
undone:
  br i1 %raised, label %error, label %sentinel
error:
  ret ptr null
sentinel:
  %sentinel.slot = getelementptr i64, ptr %context, i64 11
  %not.implemented = load ptr, ptr %sentinel.slot
  call void @Py_IncRef(ptr %not.implemented)
  ret ptr %not.implemented
}

; An arena node is two pointers: the next free node, the memory. The list is behind a lock that is only ever tried: a
; caller that does not get it (a fork may leave it held) allocates, or frees, instead.
define internal i1 @arena_lock(ptr %context) nounwind {
entry:
  %lock = getelementptr i64, ptr %context, i64 8
  br label %try
try:
  %tries = phi i32 [ 0, %entry ], [ %tries.next, %again ]
  %pair = cmpxchg ptr %lock, i64 0, i64 1 acquire monotonic
  %got = extractvalue { i64, i1 } %pair, 1
  br i1 %got, label %done, label %again
again:
  %tries.next = add i32 %tries, 1
  %end = icmp eq i32 %tries.next, 256
  br i1 %end, label %done, label %try
done:
  ret i1 %got
}

define internal void @arena_unlock(ptr %context) nounwind {
  %lock = getelementptr i64, ptr %context, i64 8
  store atomic i64 0, ptr %lock release, align 8
  ret void
}

define internal ptr @arena_take(ptr %context) nounwind {
entry:
  %locked = call i1 @arena_lock(ptr %context)
  br i1 %locked, label %look, label %allocate
look:
  %head.slot = getelementptr i64, ptr %context, i64 7
  %head = load ptr, ptr %head.slot
  %none = icmp eq ptr %head, null
  br i1 %none, label %empty, label %reuse
reuse:
  %next = load ptr, ptr %head
  store ptr %next, ptr %head.slot
  call void @arena_unlock(ptr %context)
  ret ptr %head
empty:
  call void @arena_unlock(ptr %context)
  br label %allocate
allocate:
  %node = call ptr @malloc(i64 16)
  %node.failed = icmp eq ptr %node, null
  br i1 %node.failed, label %failed, label %memory
memory:
  %bytes.slot = getelementptr i64, ptr %context, i64 5
  %bytes = load i64, ptr %bytes.slot
  %align.slot = getelementptr i64, ptr %context, i64 6
  %align = load i64, ptr %align.slot
  %data.at = getelementptr ptr, ptr %node, i64 1
  %code = call i32 @posix_memalign(ptr %data.at, i64 %align, i64 %bytes)
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %drop, label %advise.check
advise.check:
  %large = icmp ugt i64 %align, 4096
  br i1 %large, label %advise, label %made
advise:
  ; 14 is MADV_HUGEPAGE; a kernel without it only costs page faults
  %data = load ptr, ptr %data.at
  %ignored = call i32 @madvise(ptr %data, i64 %bytes, i32 14)
  br label %made
made:
  ret ptr %node
drop:
  call void @free(ptr %node)
  br label %failed
failed:
  ret ptr null
}

define internal void @arena_give(ptr %context, ptr %node) nounwind {
entry:
  %locked = call i1 @arena_lock(ptr %context)
  br i1 %locked, label %push, label %destroy
push:
  %head.slot = getelementptr i64, ptr %context, i64 7
  %head = load ptr, ptr %head.slot
  store ptr %head, ptr %node
  store ptr %node, ptr %head.slot
  call void @arena_unlock(ptr %context)
  ret void
destroy:
  call void @arena_destroy(ptr %node)
  ret void
}

define internal void @arena_destroy(ptr %node) nounwind {
  %data.at = getelementptr ptr, ptr %node, i64 1
  %data = load ptr, ptr %data.at
  call void @free(ptr %data)
  call void @free(ptr %node)
  ret void
}
