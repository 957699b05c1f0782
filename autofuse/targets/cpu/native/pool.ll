; The fork-join pool: how the blocks of a launch are handed out. team.ll is the other half: the threads that help.
;
; A launch is data: five 64-bit slots (phases, most parts, units, scratch bytes, work in tasks), then five slots for
; each phase (function, blocks, units per block, first unit, number of its buffer table). A launch of at most one part
; runs on the caller. The range of all units is cut into as many equal parts as there are participants, and each part
; into ${chunks} chunks of shrinking size; a block belongs to the chunk that holds its first unit.
;
; A participant takes the chunks of its own part from the front, so that kernels that follow each other find their
; data in the same core's cache, then those of other parts from the back. So nobody waits for a participant that has
; not begun: the others do its part. The caller is participant 0 and hands out its own scratch. Whoever finds the team
; taken (another Python thread, a call from inside a phase) runs the launch alone. The cut decides which blocks run
; where and when, never what a block computes.
;
; Every other large launch of a run goes backward: parts begin with their last chunk, and walk each in pieces, the last
; piece first. What the launch before touched last is in a core's cache still, and is what this one touches first.

declare i64 @llvm.smax.i64(i64, i64)

@team.lock = internal global i32 0, align 128
; the launch, the tables, whether to wake those who sleep, the run that it is a part of (driver.ll) or null, whether it
; goes backward
@team.job = internal global [5 x ptr] zeroinitializer, align 128
; per participant, on cache lines of its own: the next chunk from the front (32 bits), the end of those left (32 bits)
@team.parts = internal global [${participants} x [16 x i64]] zeroinitializer, align 128

; runs the blocks of a launch and returns when all are done
define void @af_parallel(ptr %launch, ptr %tables, ptr %scratch) nounwind {
  call void @parallel(ptr %launch, ptr %tables, ptr %scratch, ptr null)
  ret void
}

; the same for a run, whose caller has Python handle signals while it waits for others
define internal void @parallel(ptr %launch, ptr %tables, ptr %scratch, ptr %run) nounwind {
entry:
  %backward = call i1 @turns(ptr %launch, ptr %run)
  %most.slot = getelementptr i64, ptr %launch, i64 1
  %most = load i64, ptr %most.slot
  %threads.narrow = load atomic i32, ptr @af_threads monotonic, align 4
  %threads = sext i32 %threads.narrow to i64
  %fewer = icmp slt i64 %threads, %most
  %wanted = select i1 %fewer, i64 %threads, i64 %most
  %alone = icmp slt i64 %wanted, 2
  br i1 %alone, label %serial, label %try
try:
  %pair = cmpxchg ptr @team.lock, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %pair, 1
  br i1 %got, label %locked, label %serial
locked:
  %parts = call i64 @team_gather(ptr %launch, i64 %wanted)
  %no.help = icmp slt i64 %parts, 2
  br i1 %no.help, label %give.up, label %fork
give.up:
  store atomic i32 0, ptr @team.lock release, align 4
  br label %serial
fork:
  store ptr %launch, ptr @team.job
  store ptr %tables, ptr getelementptr (i8, ptr @team.job, i64 8)
  store ptr %run, ptr getelementptr (i8, ptr @team.job, i64 24)
  %backward.wide = zext i1 %backward to i64
  store i64 %backward.wide, ptr getelementptr (i8, ptr @team.job, i64 32)
  br label %deal
deal:
  %p = phi i64 [ 0, %fork ], [ %p.next, %deal ]
  %cursor = getelementptr [16 x i64], ptr @team.parts, i64 %p
  store atomic i64 ${all_chunks}, ptr %cursor monotonic, align 8
  %p.next = add i64 %p, 1
  %dealt = icmp eq i64 %p.next, %parts
  br i1 %dealt, label %open, label %deal
open:
  call void @team_open(i64 %parts)
  call void @run_chunks(i64 0, i64 %parts, ptr %scratch)
  call void @team_close()
  store atomic i32 0, ptr @team.lock release, align 4
  ret void
serial:
  br i1 %backward, label %serial.backward, label %serial.forward
serial.backward:
  %units.slot = getelementptr i64, ptr %launch, i64 2
  %units = load i64, ptr %units.slot
  call void @run_backward(ptr %launch, ptr %tables, i64 0, i64 %units, i64 %units, ptr %scratch)
  ret void
serial.forward:
  %count = load i64, ptr %launch
  %phases = getelementptr i64, ptr %launch, i64 5
  br label %serial.check
serial.check:
  %i = phi i64 [ 0, %serial.forward ], [ %i.next, %serial.one ]
  %serial.end = icmp eq i64 %i, %count
  br i1 %serial.end, label %serial.done, label %serial.one
serial.one:
  %phase = getelementptr [5 x i64], ptr %phases, i64 %i
  %blocks.slot = getelementptr i64, ptr %phase, i64 1
  %blocks = load i64, ptr %blocks.slot
  call void @run_phase(ptr %phase, ptr %tables, i64 0, i64 %blocks, ptr %scratch)
  %i.next = add i64 %i, 1
  br label %serial.check
serial.done:
  ret void
}

; whether a launch goes backward: every other one of a run that is large enough to push what it touches out of a cache
define internal i1 @turns(ptr %launch, ptr %run) alwaysinline nounwind {
entry:
  %some = icmp ne ptr %run, null
  br i1 %some, label %measure, label %no
measure:
  %work.slot = getelementptr i64, ptr %launch, i64 4
  %work = load i64, ptr %work.slot
  %large = icmp sge i64 %work, ${turning_work}
  br i1 %large, label %turn, label %no
turn:
  %turn.at = getelementptr i8, ptr %run, i64 40
  %before = load i64, ptr %turn.at
  %after = xor i64 %before, 1
  store i64 %after, ptr %turn.at
  %backward = icmp ne i64 %before, 0
  ret i1 %backward
no:
  ret i1 false
}

; what participant `me` of `parts` does for the job: its own part, then what is left of the others
define internal void @run_chunks(i64 %me, i64 %parts, ptr %scratch) nounwind {
entry:
  %launch = load ptr, ptr @team.job
  %tables = load ptr, ptr getelementptr (i8, ptr @team.job, i64 8)
  %mine = getelementptr [16 x i64], ptr @team.parts, i64 %me
  br label %own
own:
  %front = call i64 @take_front(ptr %mine)
  %own.over = icmp slt i64 %front, 0
  br i1 %own.over, label %next.part, label %own.run
own.run:
  call void @run_chunk(ptr %launch, ptr %tables, i64 %me, i64 %parts, i64 %front, ptr %scratch)
  br label %own
next.part:
  %before = phi i64 [ %me, %own ], [ %victim, %other ]
  %after = add i64 %before, 1
  %wraps = icmp eq i64 %after, %parts
  %victim = select i1 %wraps, i64 0, i64 %after
  %round = icmp eq i64 %victim, %me
  br i1 %round, label %done, label %other
other:
  %theirs = getelementptr [16 x i64], ptr @team.parts, i64 %victim
  %back = call i64 @take_back(ptr %theirs)
  %other.over = icmp slt i64 %back, 0
  br i1 %other.over, label %next.part, label %other.run
other.run:
  call void @run_chunk(ptr %launch, ptr %tables, i64 %victim, i64 %parts, i64 %back, ptr %scratch)
  br label %other
done:
  ret void
}

; the number of the next chunk of a part, its owner's way; -1 when none is left
define internal i64 @take_front(ptr %cursor) nounwind {
entry:
  %first = load atomic i64, ptr %cursor monotonic, align 8
  br label %try
try:
  %now = phi i64 [ %first, %entry ], [ %seen, %claim ]
  %front = and i64 %now, 4294967295
  %back = lshr i64 %now, 32
  %left = icmp ult i64 %front, %back
  br i1 %left, label %claim, label %none
claim:
  %less = add i64 %now, 1
  %pair = cmpxchg ptr %cursor, i64 %now, i64 %less monotonic monotonic
  %seen = extractvalue { i64, i1 } %pair, 0
  %got = extractvalue { i64, i1 } %pair, 1
  br i1 %got, label %done, label %try
done:
  ret i64 %front
none:
  ret i64 -1
}

; the number of the last chunk left of a part, for those who help; -1 when none is left
define internal i64 @take_back(ptr %cursor) nounwind {
entry:
  %first = load atomic i64, ptr %cursor monotonic, align 8
  br label %try
try:
  %now = phi i64 [ %first, %entry ], [ %seen, %claim ]
  %front = and i64 %now, 4294967295
  %back = lshr i64 %now, 32
  %left = icmp ult i64 %front, %back
  br i1 %left, label %claim, label %none
claim:
  %less = sub i64 %now, 4294967296
  %pair = cmpxchg ptr %cursor, i64 %now, i64 %less monotonic monotonic
  %seen = extractvalue { i64, i1 } %pair, 0
  %got = extractvalue { i64, i1 } %pair, 1
  br i1 %got, label %done, label %try
done:
  %last = sub i64 %back, 1
  ret i64 %last
none:
  ret i64 -1
}

; runs chunk `chunk` of part `part`
define internal void @run_chunk(ptr %launch, ptr %tables, i64 %part, i64 %parts, i64 %chunk, ptr %scratch) nounwind {
entry:
  %units.slot = getelementptr i64, ptr %launch, i64 2
  %units = load i64, ptr %units.slot
  %share = udiv i64 %units, %parts
  %rest = urem i64 %units, %parts
  %early = icmp ult i64 %part, %rest
  %ahead = select i1 %early, i64 %part, i64 %rest
  %even = mul i64 %share, %part
  %start = add i64 %even, %ahead
  %extra = zext i1 %early to i64
  %length = add i64 %share, %extra
  %chunk.next = add i64 %chunk, 1
  %low.in = call i64 @chunk_start(i64 %length, i64 %chunk)
  %high.in = call i64 @chunk_start(i64 %length, i64 %chunk.next)
  %backward.wide = load i64, ptr getelementptr (i8, ptr @team.job, i64 32)
  %backward = icmp ne i64 %backward.wide, 0
  br i1 %backward, label %from.end, label %from.start
from.start:
  %low = add i64 %start, %low.in
  %high = add i64 %start, %high.in
  call void @run_units(ptr %launch, ptr %tables, i64 %low, i64 %high, ptr %scratch)
  ret void
from.end:
  %end = add i64 %start, %length
  %low.back = sub i64 %end, %high.in
  %high.back = sub i64 %end, %low.in
  call void @run_backward(ptr %launch, ptr %tables, i64 %low.back, i64 %high.back, i64 %length, ptr %scratch)
  ret void
}

; runs the units from `low` to `high` in pieces of a part of `length` units, the last piece first
define internal void @run_backward(ptr %launch, ptr %tables, i64 %low, i64 %high, i64 %length, ptr %scratch) nounwind {
entry:
  %cut = udiv i64 %length, ${pieces}
  %size = call i64 @llvm.smax.i64(i64 %cut, i64 1)
  br label %check
check:
  %to = phi i64 [ %high, %entry ], [ %from, %piece ]
  %left = sub i64 %to, %low
  %over = icmp sle i64 %left, 0
  br i1 %over, label %done, label %piece
piece:
  %whole = icmp slt i64 %left, %size
  %some = select i1 %whole, i64 %left, i64 %size
  %from = sub i64 %to, %some
  call void @run_units(ptr %launch, ptr %tables, i64 %from, i64 %to, ptr %scratch)
  br label %check
done:
  ret void
}

; runs the blocks that begin in the units from `low` to `high`
define internal void @run_units(ptr %launch, ptr %tables, i64 %low, i64 %high, ptr %scratch) nounwind {
entry:
  %count = load i64, ptr %launch
  %phases = getelementptr i64, ptr %launch, i64 5
  %empty = icmp eq i64 %low, %high
  br i1 %empty, label %done, label %search
search:
  ; the first phase that ends after `low`
  %from = phi i64 [ 0, %entry ], [ %from.next, %probe ]
  %to = phi i64 [ %count, %entry ], [ %to.next, %probe ]
  %narrow = icmp ult i64 %from, %to
  br i1 %narrow, label %probe, label %check
probe:
  %sum = add i64 %from, %to
  %middle = lshr i64 %sum, 1
  %middle.phase = getelementptr [5 x i64], ptr %phases, i64 %middle
  %middle.end = call i64 @phase_end(ptr %middle.phase)
  %ends.later = icmp ugt i64 %middle.end, %low
  %behind = add i64 %middle, 1
  %from.next = select i1 %ends.later, i64 %from, i64 %behind
  %to.next = select i1 %ends.later, i64 %middle, i64 %to
  br label %search
check:
  %i = phi i64 [ %from, %search ], [ %i.next, %next ]
  %last = icmp uge i64 %i, %count
  br i1 %last, label %done, label %look
look:
  %phase = getelementptr [5 x i64], ptr %phases, i64 %i
  %base.slot = getelementptr i64, ptr %phase, i64 3
  %base = load i64, ptr %base.slot
  %beyond = icmp uge i64 %base, %high
  br i1 %beyond, label %done, label %one
one:
  %begin = call i64 @first_block(ptr %phase, i64 %low)
  %stop = call i64 @first_block(ptr %phase, i64 %high)
  %some = icmp ult i64 %begin, %stop
  br i1 %some, label %run, label %next
run:
  call void @run_phase(ptr %phase, ptr %tables, i64 %begin, i64 %stop, ptr %scratch)
  br label %next
next:
  %i.next = add i64 %i, 1
  br label %check
done:
  ret void
}

; where chunk `chunk` of a part of `length` units starts: each is smaller than the one before by the same amount, so
; that the first, which nearly always runs where the same part of the kernel before ran, is large and the last small
define internal i64 @chunk_start(i64 %length, i64 %chunk) alwaysinline nounwind {
  %left = sub i64 ${chunks}, %chunk
  %square = mul i64 %left, %left
  %scaled = mul i64 %length, %square
  %remaining = udiv i64 %scaled, ${chunks_squared}
  %start = sub i64 %length, %remaining
  ret i64 %start
}

define internal void @run_phase(ptr %phase, ptr %tables, i64 %begin, i64 %stop, ptr %scratch) alwaysinline nounwind {
  %function = load ptr, ptr %phase
  %table.slot = getelementptr i64, ptr %phase, i64 4
  %table.number = load i64, ptr %table.slot
  %table.at = getelementptr ptr, ptr %tables, i64 %table.number
  %table = load ptr, ptr %table.at
  call void %function(ptr %table, i64 %begin, i64 %stop, ptr %scratch)
  ret void
}

; the unit after a phase's last
define internal i64 @phase_end(ptr %phase) alwaysinline nounwind {
  %blocks.slot = getelementptr i64, ptr %phase, i64 1
  %blocks = load i64, ptr %blocks.slot
  %weight.slot = getelementptr i64, ptr %phase, i64 2
  %weight = load i64, ptr %weight.slot
  %base.slot = getelementptr i64, ptr %phase, i64 3
  %base = load i64, ptr %base.slot
  %length = mul i64 %blocks, %weight
  %end = add i64 %base, %length
  ret i64 %end
}

; the first block of a phase that starts at or after `unit`; the number of blocks when there is none
define internal i64 @first_block(ptr %phase, i64 %unit) alwaysinline nounwind {
entry:
  %base.slot = getelementptr i64, ptr %phase, i64 3
  %base = load i64, ptr %base.slot
  %inside = icmp ugt i64 %unit, %base
  br i1 %inside, label %later, label %done
later:
  %blocks.slot = getelementptr i64, ptr %phase, i64 1
  %blocks = load i64, ptr %blocks.slot
  %end = call i64 @phase_end(ptr %phase)
  %beyond = icmp uge i64 %unit, %end
  br i1 %beyond, label %done, label %divide
divide:
  %weight.slot = getelementptr i64, ptr %phase, i64 2
  %weight = load i64, ptr %weight.slot
  %into = sub i64 %unit, %base
  %weight.less = sub i64 %weight, 1
  %rounded = add i64 %into, %weight.less
  %block = udiv i64 %rounded, %weight
  br label %done
done:
  %result = phi i64 [ 0, %entry ], [ %blocks, %later ], [ %block, %divide ]
  ret i64 %result
}
