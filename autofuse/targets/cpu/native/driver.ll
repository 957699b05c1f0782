; The driver: runs the calls of a program in order. The program is data, 64-bit words that driver.py lays out:
;   groups, uses BLAS, most members, most buffers of a call, offset of the caller's scratch in the arena, forks often,
;   then for each group: members, steps,
;     for each member: buffers, then for each buffer: kind, value,
;     for each step: address of a launch (see pool.ll);
;   or, for a loop or a branch around calls: -1, address of a frame (see regions.ll).
; A buffer is an argument (kind 0, number), arena memory (1, offset) or an address (2). All members' tables are filled,
; then the steps run one after another. `times`, unless null, receives the nanoseconds of each group. The word before a
; table is the address of a word that a call makes other than 0 if it failed: nothing is run after that, and the driver
; returns the word.

; what groups share: the caller's scratch, the tables, whether to stop, when signals were looked for, what kernels that
; data end call now and then (@has_stopped), and whether the next large launch goes backward (pool.ll)
%Run = type { ptr, ptr, i64, i64, ptr, i64 }

define i64 @af_run(ptr %program, ptr %arguments, ptr %arena, ptr %times) nounwind {
entry:
  %groups = load i64, ptr %program
  %blas.at = getelementptr i64, ptr %program, i64 1
  %blas = load i64, ptr %blas.at
  %members.at = getelementptr i64, ptr %program, i64 2
  %members.most = load i64, ptr %members.at
  %buffers.at = getelementptr i64, ptr %program, i64 3
  %buffers.most = load i64, ptr %buffers.at
  %scratch.at = getelementptr i64, ptr %program, i64 4
  %scratch.offset = load i64, ptr %scratch.at
  %scratch = getelementptr i8, ptr %arena, i64 %scratch.offset
  %forks.at = getelementptr i64, ptr %program, i64 5
  %forks = load i64, ptr %forks.at
  %start = getelementptr i64, ptr %program, i64 6
  %no.blas = icmp eq i64 %blas, 0
  %few.forks = icmp eq i64 %forks, 0
  %row.size = add i64 %buffers.most, 1
  %slots = mul i64 %members.most, %row.size
  %memory = alloca ptr, i64 %slots
  %tables = alloca ptr, i64 %members.most
  %run = alloca %Run
  store ptr %scratch, ptr %run
  %run.tables = getelementptr %Run, ptr %run, i64 0, i32 1
  store ptr %tables, ptr %run.tables
  %stop = getelementptr %Run, ptr %run, i64 0, i32 2
  store i64 0, ptr %stop
  %looked = getelementptr %Run, ptr %run, i64 0, i32 3
  store i64 0, ptr %looked
  %asked = getelementptr %Run, ptr %run, i64 0, i32 4
  store ptr @has_stopped, ptr %asked
  %turn = getelementptr %Run, ptr %run, i64 0, i32 5
  store i64 0, ptr %turn
  br label %table.check
table.check:
  %t = phi i64 [ 0, %entry ], [ %t.next, %table ]
  %tables.done = icmp eq i64 %t, %members.most
  br i1 %tables.done, label %begin, label %table
table:
  %row = mul i64 %t, %row.size
  %row.at = getelementptr ptr, ptr %memory, i64 %row
  store ptr %stop, ptr %row.at
  %table.memory = getelementptr ptr, ptr %row.at, i64 1
  %table.at = getelementptr ptr, ptr %tables, i64 %t
  store ptr %table.memory, ptr %table.at
  %t.next = add i64 %t, 1
  br label %table.check
begin:
  br i1 %few.forks, label %entered, label %expect
expect:
  call void @plan_enter()
  br label %entered
entered:
  br i1 %no.blas, label %work, label %enter
enter:
  call void @af_blas_enter()
  br label %work
work:
  call void @run_groups(ptr %start, i64 %groups, ptr %arguments, ptr %arena, ptr %run, ptr %times)
  br i1 %no.blas, label %left, label %leave
leave:
  call void @af_blas_exit()
  br label %left
left:
  br i1 %few.forks, label %done, label %expect.no.more
expect.no.more:
  call void @plan_exit()
  br label %done
done:
  %stopped = load i64, ptr %stop
  ret i64 %stopped
}

; for kernels: whether a run is to stop, by the address of the word that says so. A thread of Python's looks for signals
define internal i64 @has_stopped(ptr %stop) cold noinline nounwind {
entry:
  %stopped = load atomic i64, ptr %stop monotonic, align 8
  %goes.on = icmp eq i64 %stopped, 0
  br i1 %goes.on, label %ask, label %done
ask:
  %helps = call i1 @is_worker()
  br i1 %helps, label %done, label %look
look:
  %run = getelementptr i8, ptr %stop, i64 -16
  call void @look_for_signals(ptr %run)
  br label %done
done:
  %found = load atomic i64, ptr %stop monotonic, align 8
  ret i64 %found
}

; runs groups one after another, until one of them says that it failed
define internal void @run_groups(ptr %start, i64 %groups, ptr %arguments, ptr %arena, ptr %run, ptr %times) nounwind {
entry:
  %scratch = load ptr, ptr %run
  %tables.at = getelementptr %Run, ptr %run, i64 0, i32 1
  %tables = load ptr, ptr %tables.at
  %stop = getelementptr %Run, ptr %run, i64 0, i32 2
  %timed = icmp ne ptr %times, null
  br label %group.check

group.check:
  %g = phi i64 [ 0, %entry ], [ %g.next, %group.next ]
  %at = phi ptr [ %start, %entry ], [ %group.after, %group.next ]
  %groups.done = icmp eq i64 %g, %groups
  br i1 %groups.done, label %done, label %group
group:
  %members = load i64, ptr %at
  %steps.at = getelementptr i64, ptr %at, i64 1
  %steps = load i64, ptr %steps.at
  %first.member = getelementptr i64, ptr %at, i64 2
  br i1 %timed, label %time.before, label %begin
time.before:
  %before.read = call i64 @now()
  br label %begin
begin:
  %before = phi i64 [ 0, %group ], [ %before.read, %time.before ]
  %is.region = icmp slt i64 %members, 0
  br i1 %is.region, label %region, label %member.check
region:
  %frame = inttoptr i64 %steps to ptr
  call void @run_region(ptr %frame, ptr %arguments, ptr %arena, ptr %run)
  br label %group.end

member.check:
  %l = phi i64 [ 0, %begin ], [ %l.next, %member.end ]
  %member.at = phi ptr [ %first.member, %begin ], [ %buffer.at, %member.end ]
  %members.done = icmp eq i64 %l, %members
  br i1 %members.done, label %step.check, label %member
member:
  %count = load i64, ptr %member.at
  %first.buffer = getelementptr i64, ptr %member.at, i64 1
  %member.table.at = getelementptr ptr, ptr %tables, i64 %l
  %member.table = load ptr, ptr %member.table.at
  br label %buffer.check
buffer.check:
  %b = phi i64 [ 0, %member ], [ %b.next, %buffer ]
  %buffer.at = phi ptr [ %first.buffer, %member ], [ %buffer.next, %buffer ]
  %buffers.done = icmp eq i64 %b, %count
  br i1 %buffers.done, label %member.end, label %buffer
buffer:
  %pointer = call ptr @resolved(ptr %buffer.at, ptr %arguments, ptr %arena)
  %slot = getelementptr ptr, ptr %member.table, i64 %b
  store ptr %pointer, ptr %slot
  %b.next = add i64 %b, 1
  %buffer.next = getelementptr i64, ptr %buffer.at, i64 2
  br label %buffer.check
member.end:
  %l.next = add i64 %l, 1
  br label %member.check

step.check:
  %s = phi i64 [ 0, %member.check ], [ %s.next, %step ]
  %step.at = phi ptr [ %member.at, %member.check ], [ %step.next, %step ]
  %steps.done = icmp eq i64 %s, %steps
  br i1 %steps.done, label %group.end, label %step
step:
  %launch = load ptr, ptr %step.at
  call void @parallel(ptr %launch, ptr %tables, ptr %scratch, ptr %run)
  %s.next = add i64 %s, 1
  %step.next = getelementptr i64, ptr %step.at, i64 1
  br label %step.check
group.end:
  %group.after = phi ptr [ %first.member, %region ], [ %step.at, %step.check ]
  br i1 %timed, label %time.after, label %group.next.check
time.after:
  %after = call i64 @now()
  %spent = sub i64 %after, %before
  %time.at = getelementptr i64, ptr %times, i64 %g
  store i64 %spent, ptr %time.at
  br label %group.next.check
group.next.check:
  %stopped = load i64, ptr %stop
  %failed = icmp ne i64 %stopped, 0
  br i1 %failed, label %done, label %group.next
group.next:
  %g.next = add i64 %g, 1
  br label %group.check
done:
  ret void
}

; the address of a buffer, which two words say
define internal ptr @resolved(ptr %buffer, ptr %arguments, ptr %arena) alwaysinline nounwind {
entry:
  %kind = load i64, ptr %buffer
  %value.at = getelementptr i64, ptr %buffer, i64 1
  %value = load i64, ptr %value.at
  switch i64 %kind, label %address [ i64 0, label %argument
                                     i64 1, label %offset ]
argument:
  %argument.at = getelementptr ptr, ptr %arguments, i64 %value
  %from.arguments = load ptr, ptr %argument.at
  ret ptr %from.arguments
offset:
  %from.arena = getelementptr i8, ptr %arena, i64 %value
  ret ptr %from.arena
address:
  %from.address = inttoptr i64 %value to ptr
  ret ptr %from.address
}
