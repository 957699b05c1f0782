; Loops and branches around calls. A frame is 64-bit words that driver.py lays out:
;   kind (0 counted, 1 while, 2 branch), trips, number of the pointer to the flag, pointers, moves, steps, results,
;   addresses of the programs (groups, then as driver.ll says): before all, the first region, the second one,
;   then for each pointer: kind and value as of a buffer, bytes behind that,
;   for each move: to, from; for each step: pointer, bytes; for each result: to, from, bytes.
; Buffers of the programs that are arguments are the frame's pointers. After each iteration pointers move, all at once,
; then some step on. After the last one, results that are not where they must be are copied.

declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal void @run_region(ptr %frame, ptr %arguments, ptr %arena, ptr %run) nounwind {
entry:
  %kind = load i64, ptr %frame
  %trips.at = getelementptr i64, ptr %frame, i64 1
  %trips = load i64, ptr %trips.at
  %flag.at = getelementptr i64, ptr %frame, i64 2
  %flag = load i64, ptr %flag.at
  %count.at = getelementptr i64, ptr %frame, i64 3
  %count = load i64, ptr %count.at
  %moves.at = getelementptr i64, ptr %frame, i64 4
  %moves = load i64, ptr %moves.at
  %steps.at = getelementptr i64, ptr %frame, i64 5
  %steps = load i64, ptr %steps.at
  %results.at = getelementptr i64, ptr %frame, i64 6
  %results = load i64, ptr %results.at
  %before.at = getelementptr i64, ptr %frame, i64 7
  %before = load ptr, ptr %before.at
  %first.at = getelementptr i64, ptr %frame, i64 8
  %first = load ptr, ptr %first.at
  %second.at = getelementptr i64, ptr %frame, i64 9
  %second = load ptr, ptr %second.at
  %pointer.words = getelementptr i64, ptr %frame, i64 10
  %pointers = alloca ptr, i64 %count
  %moved = alloca ptr, i64 %moves
  %stop = getelementptr %Run, ptr %run, i64 0, i32 2
  br label %pointer.check
pointer.check:
  %p = phi i64 [ 0, %entry ], [ %p.next, %pointer ]
  %words = phi ptr [ %pointer.words, %entry ], [ %words.next, %pointer ]
  %pointers.done = icmp eq i64 %p, %count
  br i1 %pointers.done, label %begin, label %pointer
pointer:
  %base = call ptr @resolved(ptr %words, ptr %arguments, ptr %arena)
  %offset.at = getelementptr i64, ptr %words, i64 2
  %offset = load i64, ptr %offset.at
  %address = getelementptr i8, ptr %base, i64 %offset
  %pointer.at = getelementptr ptr, ptr %pointers, i64 %p
  store ptr %address, ptr %pointer.at
  %p.next = add i64 %p, 1
  %words.next = getelementptr i64, ptr %words, i64 3
  br label %pointer.check

begin:
  %move.words = phi ptr [ %words, %pointer.check ]
  %move.count = mul i64 %moves, 2
  %step.words = getelementptr i64, ptr %move.words, i64 %move.count
  %step.count = mul i64 %steps, 2
  %result.words = getelementptr i64, ptr %step.words, i64 %step.count
  call void @run_part(ptr %before, ptr %pointers, ptr %arena, ptr %run)
  %flag.pointer.at = getelementptr ptr, ptr %pointers, i64 %flag
  switch i64 %kind, label %branch [ i64 0, label %counted.check
                                    i64 1, label %while.check ]

branch:
  %taken = call i1 @holds(ptr %flag.pointer.at)
  %side = select i1 %taken, ptr %first, ptr %second
  call void @run_part(ptr %side, ptr %pointers, ptr %arena, ptr %run)
  ret void

counted.check:
  %i = phi i64 [ 0, %begin ], [ %i.next, %counted.next ]
  %counted.done = icmp eq i64 %i, %trips
  br i1 %counted.done, label %finish, label %iteration
while.check:
  call void @run_part(ptr %first, ptr %pointers, ptr %arena, ptr %run)
  %condition.stopped = load i64, ptr %stop
  %condition.failed = icmp ne i64 %condition.stopped, 0
  br i1 %condition.failed, label %leave, label %while.decide
while.decide:
  %goes.on = call i1 @holds(ptr %flag.pointer.at)
  br i1 %goes.on, label %iteration, label %finish

iteration:
  %number = phi i64 [ %i, %counted.check ], [ 0, %while.decide ]
  %body = phi ptr [ %first, %counted.check ], [ %second, %while.decide ]
  call void @run_part(ptr %body, ptr %pointers, ptr %arena, ptr %run)
  call void @look_for_signals(ptr %run)
  %stopped = load i64, ptr %stop
  %failed = icmp ne i64 %stopped, 0
  br i1 %failed, label %leave, label %read.check

read.check:
  %r = phi i64 [ 0, %iteration ], [ %r.next, %read ]
  %reads.done = icmp eq i64 %r, %moves
  br i1 %reads.done, label %write.check, label %read
read:
  %r.word = mul i64 %r, 2
  %r.from.word = add i64 %r.word, 1
  %from.at = getelementptr i64, ptr %move.words, i64 %r.from.word
  %from = load i64, ptr %from.at
  %from.pointer.at = getelementptr ptr, ptr %pointers, i64 %from
  %from.pointer = load ptr, ptr %from.pointer.at
  %moved.at = getelementptr ptr, ptr %moved, i64 %r
  store ptr %from.pointer, ptr %moved.at
  %r.next = add i64 %r, 1
  br label %read.check
write.check:
  %w = phi i64 [ 0, %read.check ], [ %w.next, %write ]
  %writes.done = icmp eq i64 %w, %moves
  br i1 %writes.done, label %step.check, label %write
write:
  %w.word = mul i64 %w, 2
  %to.at = getelementptr i64, ptr %move.words, i64 %w.word
  %to = load i64, ptr %to.at
  %to.pointer.at = getelementptr ptr, ptr %pointers, i64 %to
  %kept.at = getelementptr ptr, ptr %moved, i64 %w
  %kept = load ptr, ptr %kept.at
  store ptr %kept, ptr %to.pointer.at
  %w.next = add i64 %w, 1
  br label %write.check
step.check:
  %s = phi i64 [ 0, %write.check ], [ %s.next, %step ]
  %steps.done = icmp eq i64 %s, %steps
  br i1 %steps.done, label %next, label %step
step:
  %s.word = mul i64 %s, 2
  %s.bytes.word = add i64 %s.word, 1
  %stepping.at = getelementptr i64, ptr %step.words, i64 %s.word
  %stepping = load i64, ptr %stepping.at
  %bytes.at = getelementptr i64, ptr %step.words, i64 %s.bytes.word
  %bytes = load i64, ptr %bytes.at
  %stepping.pointer.at = getelementptr ptr, ptr %pointers, i64 %stepping
  %here = load ptr, ptr %stepping.pointer.at
  %there = getelementptr i8, ptr %here, i64 %bytes
  store ptr %there, ptr %stepping.pointer.at
  %s.next = add i64 %s, 1
  br label %step.check
next:
  %is.while = icmp eq i64 %kind, 1
  br i1 %is.while, label %while.check, label %counted.next
counted.next:
  %i.next = add i64 %number, 1
  br label %counted.check

finish:
  br label %result.check
result.check:
  %c = phi i64 [ 0, %finish ], [ %c.next, %result.end ]
  %results.done = icmp eq i64 %c, %results
  br i1 %results.done, label %leave, label %result
result:
  %c.word = mul i64 %c, 3
  %c.source.word = add i64 %c.word, 1
  %c.bytes.word = add i64 %c.word, 2
  %target.number.at = getelementptr i64, ptr %result.words, i64 %c.word
  %target.number = load i64, ptr %target.number.at
  %source.number.at = getelementptr i64, ptr %result.words, i64 %c.source.word
  %source.number = load i64, ptr %source.number.at
  %size.at = getelementptr i64, ptr %result.words, i64 %c.bytes.word
  %size = load i64, ptr %size.at
  %target.at = getelementptr ptr, ptr %pointers, i64 %target.number
  %target = load ptr, ptr %target.at
  %source.at = getelementptr ptr, ptr %pointers, i64 %source.number
  %source = load ptr, ptr %source.at
  %in.place = icmp eq ptr %target, %source
  br i1 %in.place, label %result.end, label %copy
copy:
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %size, i1 false)
  br label %result.end
result.end:
  %c.next = add i64 %c, 1
  br label %result.check
leave:
  ret void
}

; runs one of a frame's programs
define internal void @run_part(ptr %program, ptr %pointers, ptr %arena, ptr %run) nounwind {
  %groups = load i64, ptr %program
  %start = getelementptr i64, ptr %program, i64 1
  call void @run_groups(ptr %start, i64 %groups, ptr %pointers, ptr %arena, ptr %run, ptr null)
  ret void
}

; whether the bool that a pointer of the frame points to is true
define internal i1 @holds(ptr %pointer.at) alwaysinline nounwind {
  %pointer = load ptr, ptr %pointer.at
  %flag = load i8, ptr %pointer
  %true = icmp ne i8 %flag, 0
  ret i1 %true
}

; has Python handle signals every 50 ms, so that Ctrl-C ends a loop that does not; the exception stays with the thread
define internal void @look_for_signals(ptr %run) nounwind {
entry:
  %looked.at = getelementptr %Run, ptr %run, i64 0, i32 3
  %looked = load i64, ptr %looked.at
  %now = call i64 @now()
  %fresh = icmp eq i64 %looked, 0
  br i1 %fresh, label %note, label %later
later:
  %since = sub i64 %now, %looked
  %due = icmp sgt i64 %since, 50000000
  br i1 %due, label %look, label %done
look:
  %held = call i32 @PyGILState_Ensure()
  %code = call i32 @PyErr_CheckSignals()
  call void @PyGILState_Release(i32 %held)
  %raised = icmp ne i32 %code, 0
  br i1 %raised, label %stop, label %note
stop:
  %stop.at = getelementptr %Run, ptr %run, i64 0, i32 2
  store i64 1, ptr %stop.at
  br label %done
note:
  store i64 %now, ptr %looked.at
  br label %done
done:
  ret void
}
