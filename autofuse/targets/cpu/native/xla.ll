; A handler of XLA's C FFI: programs called by XLA's runtime, on its buffers, on its threads, without Python.
;
; An entry says which program a number stands for: 64-bit slots, in the order of xla.py's _ENTRY:
;    0 the next entry     1 the program's number     2 its context (see entry.ll)     3 executables that refer to it
; When an executable is made, the first handler looks the attribute `program` up among the entries and leaves the entry
; to XLA as the state of that call; XLA gives it back when the executable is gone. An entry that no executable refers
; to may be retired: its count becomes far below 0, and it is never used again. Entries stay linked for ever.
;
; Offsets below are those of xla/ffi/api/c_api.h, version 0.3. %Frame: size, extension, api, context, stage, arguments
; (size, extension, count, types, buffers), results (the same), attributes (size, extension, count, types, names,
; values).

@xla_entries = internal global ptr null
; what XLA calls the type of an entry
@af_xla_type = global i64 0
; what says why a program stopped, given its entry: a text, or null
@af_xla_reason = global ptr null

@xla_says_unknown = internal constant [121 x i8] c"autofuse: this process lacks the plan that an executable calls; trace and compile its function here, by autofuse.jax.jit\00"
@xla_says_memory = internal constant [61 x i8] c"autofuse: no memory for the temporaries of a plan; free some\00"
@xla_says_shape = internal constant [82 x i8] c"autofuse: an executable calls a plan with another number of buffers than it takes\00"
@xla_says_stopped = internal constant [44 x i8] c"autofuse: a plan was stopped before its end\00"

; puts an entry before the others; one caller at a time
define void @af_xla_enter(ptr %entered) nounwind {
  %head = load ptr, ptr @xla_entries
  store ptr %head, ptr %entered
  store atomic ptr %entered, ptr @xla_entries release, align 8
  ret void
}

; 1 if no executable refers to the entry, which is not used any more then
define i64 @af_xla_retire(ptr %entered) nounwind {
  %count = getelementptr i64, ptr %entered, i64 3
  %pair = cmpxchg ptr %count, i64 0, i64 -4611686018427387904 acq_rel monotonic
  %retired = extractvalue { i64, i1 } %pair, 1
  %number = zext i1 %retired to i64
  ret i64 %number
}

; an executable is gone
define void @af_xla_left(ptr %entered) nounwind {
  %count = getelementptr i64, ptr %entered, i64 3
  %ignored = atomicrmw sub ptr %count, i64 1 acq_rel
  ret void
}

; an executable is made, or XLA asks what it has to do with
define ptr @af_xla_instantiate(ptr %frame) nounwind {
entry:
  %asked = call i1 @xla_described(ptr %frame, i64 1)
  br i1 %asked, label %good, label %find
find:
  %wanted = call i64 @xla_number(ptr %frame)
  %head = load atomic ptr, ptr @xla_entries acquire, align 8
  br label %check
check:
  %at = phi ptr [ %head, %find ], [ %next, %other ]
  %end = icmp eq ptr %at, null
  br i1 %end, label %unknown, label %look
look:
  %next = load ptr, ptr %at
  %number.at = getelementptr i64, ptr %at, i64 1
  %number = load i64, ptr %number.at
  %same = icmp eq i64 %number, %wanted
  br i1 %same, label %take, label %other
take:
  %count = getelementptr i64, ptr %at, i64 3
  %before = atomicrmw add ptr %count, i64 1 acq_rel
  %lives = icmp sge i64 %before, 0
  br i1 %lives, label %taken, label %retired
retired:
  call void @af_xla_left(ptr %at)
  br label %other
other:
  br label %check
taken:
  %error = call ptr @xla_state(ptr %frame, i64 104, ptr %at)
  %failed = icmp ne ptr %error, null
  br i1 %failed, label %give.back, label %good
give.back:
  call void @af_xla_left(ptr %at)
  ret ptr %error
unknown:
  %refused = call ptr @xla_error(ptr %frame, i32 5, ptr @xla_says_unknown)
  ret ptr %refused
good:
  ret ptr null
}

; an executable runs
define ptr @af_xla_execute(ptr %frame) nounwind {
entry:
  %asked = call i1 @xla_described(ptr %frame, i64 0)
  br i1 %asked, label %good, label %start
start:
  %state = alloca ptr
  store ptr null, ptr %state
  %missing = call ptr @xla_state(ptr %frame, i64 112, ptr %state)
  %failed = icmp ne ptr %missing, null
  br i1 %failed, label %pass.on, label %known
pass.on:
  ret ptr %missing
known:
  %entered = load ptr, ptr %state
  %context.at = getelementptr i64, ptr %entered, i64 2
  %context = load ptr, ptr %context.at
  %inputs = load i64, ptr %context
  %outputs.at = getelementptr i64, ptr %context, i64 1
  %outputs = load i64, ptr %outputs.at
  %arguments.at = getelementptr i8, ptr %frame, i64 56
  %arguments = load i64, ptr %arguments.at
  %results.at = getelementptr i8, ptr %frame, i64 96
  %results = load i64, ptr %results.at
  %inputs.same = icmp eq i64 %inputs, %arguments
  %outputs.same = icmp eq i64 %outputs, %results
  %fits = and i1 %inputs.same, %outputs.same
  br i1 %fits, label %gather, label %misfit
misfit:
  %refused = call ptr @xla_error(ptr %frame, i32 3, ptr @xla_says_shape)
  ret ptr %refused
gather:
  %values = add i64 %inputs, %outputs
  %pointers = alloca ptr, i64 %values
  %out.pointers = getelementptr ptr, ptr %pointers, i64 %inputs
  %argument.buffers.at = getelementptr i8, ptr %frame, i64 72
  %argument.buffers = load ptr, ptr %argument.buffers.at
  %result.buffers.at = getelementptr i8, ptr %frame, i64 112
  %result.buffers = load ptr, ptr %result.buffers.at
  call void @xla_data(ptr %argument.buffers, i64 %inputs, ptr %pointers)
  call void @xla_data(ptr %result.buffers, i64 %outputs, ptr %out.pointers)
  %arena.bytes.at = getelementptr i64, ptr %context, i64 5
  %arena.bytes = load i64, ptr %arena.bytes.at
  %no.arena = icmp eq i64 %arena.bytes, 0
  br i1 %no.arena, label %run, label %take.arena
take.arena:
  %node = call ptr @arena_take(ptr %context)
  %node.failed = icmp eq ptr %node, null
  br i1 %node.failed, label %no.memory, label %have.arena
no.memory:
  %exhausted = call ptr @xla_error(ptr %frame, i32 8, ptr @xla_says_memory)
  ret ptr %exhausted
have.arena:
  %node.data.at = getelementptr ptr, ptr %node, i64 1
  %node.data = load ptr, ptr %node.data.at
  br label %run
run:
  %held = phi ptr [ null, %gather ], [ %node, %have.arena ]
  %arena = phi ptr [ null, %gather ], [ %node.data, %have.arena ]
  %program.at = getelementptr i64, ptr %context, i64 4
  %program = load ptr, ptr %program.at
  ; XLA's threads take subnormal numbers for zeros; plans do not, on whatever thread a part of them runs
  %kept = call i64 @float_mode()
  call void @set_float_mode(i64 ${float_mode})
  %stopped = call i64 @af_run(ptr %program, ptr %pointers, ptr %arena, ptr null)
  call void @set_float_mode(i64 %kept)
  br i1 %no.arena, label %ran, label %give.arena
give.arena:
  call void @arena_give(ptr %context, ptr %held)
  br label %ran
ran:
  %whole = icmp eq i64 %stopped, 0
  br i1 %whole, label %good, label %explain
explain:
  %error = call ptr @xla_stopped(ptr %frame, ptr %entered)
  ret ptr %error
good:
  ret ptr null
}

; the addresses of buffers
define internal void @xla_data(ptr %buffers, i64 %count, ptr %pointers) alwaysinline nounwind {
entry:
  br label %check
check:
  %i = phi i64 [ 0, %entry ], [ %i.next, %one ]
  %end = icmp eq i64 %i, %count
  br i1 %end, label %done, label %one
one:
  %buffer.at = getelementptr ptr, ptr %buffers, i64 %i
  %buffer = load ptr, ptr %buffer.at
  %data.at = getelementptr i8, ptr %buffer, i64 24
  %data = load ptr, ptr %data.at
  %pointer.at = getelementptr ptr, ptr %pointers, i64 %i
  store ptr %data, ptr %pointer.at
  %i.next = add i64 %i, 1
  br label %check
done:
  ret void
}

; the number of the program: the value of the only attribute, a 64-bit scalar
define internal i64 @xla_number(ptr %frame) nounwind {
entry:
  %count.at = getelementptr i8, ptr %frame, i64 136
  %count = load i64, ptr %count.at
  %one = icmp eq i64 %count, 1
  br i1 %one, label %read, label %none
read:
  %values.at = getelementptr i8, ptr %frame, i64 160
  %values = load ptr, ptr %values.at
  %scalar = load ptr, ptr %values
  %value.at = getelementptr i8, ptr %scalar, i64 8
  %value = load ptr, ptr %value.at
  %number = load i64, ptr %value
  ret i64 %number
none:
  ret i64 0
}

; the state of this call, set (the function at 104 of the api) or got (at 112, into what %state points to)
define internal ptr @xla_state(ptr %frame, i64 %function.offset, ptr %state) nounwind {
entry:
  %api.at = getelementptr i8, ptr %frame, i64 16
  %api = load ptr, ptr %api.at
  %context.at = getelementptr i8, ptr %frame, i64 24
  %context = load ptr, ptr %context.at
  %function.at = getelementptr i8, ptr %api, i64 %function.offset
  %function = load ptr, ptr %function.at
  %request = alloca [6 x i64], align 8
  store i64 48, ptr %request
  %extension.at = getelementptr i64, ptr %request, i64 1
  store ptr null, ptr %extension.at
  %wanted.at = getelementptr i64, ptr %request, i64 2
  store ptr %context, ptr %wanted.at
  %stage.at = getelementptr i64, ptr %request, i64 3
  store i64 0, ptr %stage.at
  %type.at = getelementptr i64, ptr %request, i64 4
  store ptr @af_xla_type, ptr %type.at
  %state.at = getelementptr i64, ptr %request, i64 5
  store ptr %state, ptr %state.at
  %error = call ptr %function(ptr %request)
  %gets = icmp eq i64 %function.offset, 112
  %good = icmp eq ptr %error, null
  %got = and i1 %gets, %good
  br i1 %got, label %hand.out, label %done
hand.out:
  %found = load ptr, ptr %state.at
  store ptr %found, ptr %state
  br label %done
done:
  ret ptr %error
}

; whether XLA asks of which version the handler is, which is answered then
define internal i1 @xla_described(ptr %frame, i64 %stateful) nounwind {
entry:
  %extension.at = getelementptr i8, ptr %frame, i64 8
  %extension = load ptr, ptr %extension.at
  %none = icmp eq ptr %extension, null
  br i1 %none, label %no, label %look
look:
  %type.at = getelementptr i8, ptr %extension, i64 8
  %type = load i32, ptr %type.at
  %metadata = icmp eq i32 %type, 1
  br i1 %metadata, label %answer, label %no
answer:
  %about.at = getelementptr i8, ptr %extension, i64 24
  %about = load ptr, ptr %about.at
  %major.at = getelementptr i8, ptr %about, i64 24
  store i32 0, ptr %major.at
  %minor.at = getelementptr i8, ptr %about, i64 28
  store i32 3, ptr %minor.at
  %traits.at = getelementptr i8, ptr %about, i64 32
  store i32 0, ptr %traits.at
  %has.state = icmp ne i64 %stateful, 0
  br i1 %has.state, label %state, label %yes
state:
  %id = load i64, ptr @af_xla_type
  %id.at = getelementptr i8, ptr %about, i64 40
  store i64 %id, ptr %id.at
  br label %yes
yes:
  ret i1 true
no:
  ret i1 false
}

; an error that XLA takes over
define internal ptr @xla_error(ptr %frame, i32 %code, ptr %text) nounwind {
  %api.at = getelementptr i8, ptr %frame, i64 16
  %api = load ptr, ptr %api.at
  %create.at = getelementptr i8, ptr %api, i64 48
  %create = load ptr, ptr %create.at
  %request = alloca [4 x i64], align 8
  store i64 28, ptr %request
  %extension.at = getelementptr i64, ptr %request, i64 1
  store ptr null, ptr %extension.at
  %text.at = getelementptr i64, ptr %request, i64 2
  store ptr %text, ptr %text.at
  %code.at = getelementptr i64, ptr %request, i64 3
  store i32 %code, ptr %code.at
  %error = call ptr %create(ptr %request)
  ret ptr %error
}

; the error of a program that stopped: a step of the interpreter failed, or a signal's handler raised an exception. XLA
; does not hand Python's exceptions on: Ctrl-C is sent to Python again, which raises it when the call has ended
define internal ptr @xla_stopped(ptr %frame, ptr %stopped) nounwind {
entry:
  %gil = call i32 @PyGILState_Ensure()
  %raised = call ptr @PyErr_Occurred()
  %interrupted = icmp ne ptr %raised, null
  br i1 %interrupted, label %again, label %ask
again:
  call void @PyErr_Clear()
  call void @PyErr_SetInterrupt()
  br label %say
ask:
  %reason = load ptr, ptr @af_xla_reason
  %silent = icmp eq ptr %reason, null
  br i1 %silent, label %say, label %call
call:
  %told = call ptr %reason(ptr %stopped)
  %nothing = icmp eq ptr %told, null
  %chosen = select i1 %nothing, ptr @xla_says_stopped, ptr %told
  br label %say
say:
  %text = phi ptr [ @xla_says_stopped, %again ], [ @xla_says_stopped, %ask ], [ %chosen, %call ]
  %error = call ptr @xla_error(ptr %frame, i32 13, ptr %text)
  call void @PyGILState_Release(i32 %gil)
  ret ptr %error
}

; how this thread rounds: the register for it alone. fegetenv and fesetenv also save and load what x87 has, which takes
; longer than a small plan
${float_modes}

declare void @PyErr_SetInterrupt()
