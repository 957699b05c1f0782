; The driver: runs the kernel calls of a program in order. The program is data, 64-bit words that driver.py lays out:
;   groups, uses BLAS, most members, most buffers of a call, offset of the caller's scratch in the arena, forks often,
;   then for each group: members, steps,
;     for each member: buffers, then for each buffer: kind, value,
;     for each step: address of a launch (see pool.ll).
; A buffer is an argument (kind 0, number), arena memory (1, offset) or an address (2). All members' tables are filled,
; then the steps run one after another. `times`, unless null, receives the nanoseconds of each group.

define void @af_run(ptr %program, ptr %arguments, ptr %arena, ptr %times) nounwind {
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
  %timed = icmp ne ptr %times, null
  %no.blas = icmp eq i64 %blas, 0
  %few.forks = icmp eq i64 %forks, 0
  %slots = mul i64 %members.most, %buffers.most
  %memory = alloca ptr, i64 %slots
  %tables = alloca ptr, i64 %members.most
  br label %table.check
table.check:
  %t = phi i64 [ 0, %entry ], [ %t.next, %table ]
  %tables.done = icmp eq i64 %t, %members.most
  br i1 %tables.done, label %begin, label %table
table:
  %row = mul i64 %t, %buffers.most
  %table.memory = getelementptr ptr, ptr %memory, i64 %row
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
  br i1 %no.blas, label %group.check, label %enter
enter:
  call void @af_blas_enter()
  br label %group.check

group.check:
  %g = phi i64 [ 0, %entered ], [ 0, %enter ], [ %g.next, %group.end ]
  %at = phi ptr [ %start, %entered ], [ %start, %enter ], [ %step.at, %group.end ]
  %groups.done = icmp eq i64 %g, %groups
  br i1 %groups.done, label %finish, label %group
group:
  %members = load i64, ptr %at
  %steps.at = getelementptr i64, ptr %at, i64 1
  %steps = load i64, ptr %steps.at
  %first.member = getelementptr i64, ptr %at, i64 2
  br i1 %timed, label %time.before, label %member.check
time.before:
  %before.read = call i64 @now()
  br label %member.check

member.check:
  %before = phi i64 [ 0, %group ], [ %before.read, %time.before ], [ %before, %member.end ]
  %l = phi i64 [ 0, %group ], [ 0, %time.before ], [ %l.next, %member.end ]
  %member.at = phi ptr [ %first.member, %group ], [ %first.member, %time.before ], [ %buffer.at, %member.end ]
  %members.done = icmp eq i64 %l, %members
  br i1 %members.done, label %step.check, label %member
member:
  %count = load i64, ptr %member.at
  %first.buffer = getelementptr i64, ptr %member.at, i64 1
  %member.row = mul i64 %l, %buffers.most
  %member.table = getelementptr ptr, ptr %memory, i64 %member.row
  br label %buffer.check
buffer.check:
  %b = phi i64 [ 0, %member ], [ %b.next, %resolved ]
  %buffer.at = phi ptr [ %first.buffer, %member ], [ %buffer.next, %resolved ]
  %buffers.done = icmp eq i64 %b, %count
  br i1 %buffers.done, label %member.end, label %buffer
buffer:
  %kind = load i64, ptr %buffer.at
  %value.at = getelementptr i64, ptr %buffer.at, i64 1
  %value = load i64, ptr %value.at
  switch i64 %kind, label %address [ i64 0, label %argument
                                     i64 1, label %offset ]
argument:
  %argument.at = getelementptr ptr, ptr %arguments, i64 %value
  %from.arguments = load ptr, ptr %argument.at
  br label %resolved
offset:
  %from.arena = getelementptr i8, ptr %arena, i64 %value
  br label %resolved
address:
  %from.address = inttoptr i64 %value to ptr
  br label %resolved
resolved:
  %pointer = phi ptr [ %from.arguments, %argument ], [ %from.arena, %offset ], [ %from.address, %address ]
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
  br i1 %steps.done, label %group.end.check, label %step
step:
  %launch = load ptr, ptr %step.at
  call void @af_parallel(ptr %launch, ptr %tables, ptr %scratch)
  %s.next = add i64 %s, 1
  %step.next = getelementptr i64, ptr %step.at, i64 1
  br label %step.check
group.end.check:
  br i1 %timed, label %time.after, label %group.end
time.after:
  %after = call i64 @now()
  %spent = sub i64 %after, %before
  %time.at = getelementptr i64, ptr %times, i64 %g
  store i64 %spent, ptr %time.at
  br label %group.end
group.end:
  %g.next = add i64 %g, 1
  br label %group.check

finish:
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
  ret void
}
