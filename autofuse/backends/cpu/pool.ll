; The fork-join thread pool: one team of worker threads for the process, started on first use.
;
; A launch is data: four 64-bit slots (phases, most parts, units, scratch bytes), then five slots for each phase
; (function, blocks, units per block, first unit, number of its buffer table). A launch of at most one part runs on the
; caller. The range of all units is cut
; into as many equal parts as there are participants; a block belongs to the part that holds its first unit.
;
; A worker waits on a word of its own: 0 idle, 1 go, 2 asleep. It spins for a while, then sleeps on a futex. The
; caller is participant 0 and hands out its own scratch. Whoever finds the team taken (another Python thread, a call
; from inside a phase) runs the launch alone: the same blocks, the same results.

declare i64 @syscall(i64, ...)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_setname_np(i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
${relax_declare}

@af_threads = global i32 1, align 128
@af_spins = global i32 1000
@af_blas_get = global ptr null
@af_blas_set = global ptr null

@team.lock = internal global i32 0, align 128
@team.pending = internal global i32 0, align 128
@team.job = internal global [3 x i64] zeroinitializer, align 128
@team.created = internal global i64 0
; per worker, on cache lines of its own: the word it waits on, its number, its scratch, the size of that
@team.workers = internal global [${workers} x [16 x i64]] zeroinitializer, align 128
@team.name = internal constant [9 x i8] c"autofuse\00"
@blas.lock = internal global i32 0, align 128
@blas.users = internal global i64 0
@blas.saved = internal global i32 0

; runs the blocks of a launch on all participants and returns when all are done
define void @af_parallel(ptr %launch, ptr %tables, ptr %scratch) nounwind {
entry:
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
  %parts = call i64 @prepare(ptr %launch, i64 %wanted)
  %no.help = icmp slt i64 %parts, 2
  br i1 %no.help, label %give.up, label %fork
give.up:
  store atomic i32 0, ptr @team.lock release, align 4
  br label %serial
fork:
  %helpers = sub i64 %parts, 1
  store ptr %launch, ptr @team.job
  store ptr %tables, ptr getelementptr (i8, ptr @team.job, i64 8)
  store i64 %parts, ptr getelementptr (i8, ptr @team.job, i64 16)
  %helpers.narrow = trunc i64 %helpers to i32
  store atomic i32 %helpers.narrow, ptr @team.pending monotonic, align 4
  br label %start
start:
  %w = phi i64 [ 0, %fork ], [ %w.next, %started ]
  %go = getelementptr [16 x i64], ptr @team.workers, i64 %w
  %old = atomicrmw xchg ptr %go, i32 1 acq_rel
  %asleep = icmp eq i32 %old, 2
  br i1 %asleep, label %wake, label %started
wake:
  call void @futex_wake(ptr %go)
  br label %started
started:
  %w.next = add i64 %w, 1
  %all = icmp eq i64 %w.next, %helpers
  br i1 %all, label %take.part, label %start
take.part:
  call void @run_part(ptr %launch, ptr %tables, i64 0, i64 %parts, ptr %scratch)
  call void @join()
  store atomic i32 0, ptr @team.lock release, align 4
  ret void
serial:
  %count = load i64, ptr %launch
  %phases = getelementptr i64, ptr %launch, i64 4
  br label %serial.check
serial.check:
  %i = phi i64 [ 0, %serial ], [ %i.next, %serial.one ]
  %serial.end = icmp eq i64 %i, %count
  br i1 %serial.end, label %serial.done, label %serial.one
serial.one:
  %phase = getelementptr [5 x i64], ptr %phases, i64 %i
  %function = load ptr, ptr %phase
  %blocks.slot = getelementptr i64, ptr %phase, i64 1
  %blocks = load i64, ptr %blocks.slot
  %table.slot = getelementptr i64, ptr %phase, i64 4
  %table.number = load i64, ptr %table.slot
  %table.at = getelementptr ptr, ptr %tables, i64 %table.number
  %table = load ptr, ptr %table.at
  call void %function(ptr %table, i64 0, i64 %blocks, ptr %scratch)
  %i.next = add i64 %i, 1
  br label %serial.check
serial.done:
  ret void
}

; to be called in the child of a fork: the threads are gone, so is whoever held the locks
define void @af_pool_after_fork() nounwind {
entry:
  store i32 0, ptr @team.lock
  store i32 0, ptr @team.pending
  store i64 0, ptr @team.created
  store i32 0, ptr @blas.lock
  %users = load i64, ptr @blas.users
  %unused = icmp eq i64 %users, 0
  br i1 %unused, label %done, label %restore
restore:
  store i64 0, ptr @blas.users
  %saved = load i32, ptr @blas.saved
  %set = load ptr, ptr @af_blas_set
  call void %set(i32 %saved)
  br label %done
done:
  ret void
}

; how many worker threads exist
define i64 @af_pool_workers() nounwind {
  %created = load i64, ptr @team.created
  ret i64 %created
}

; while any plan that calls BLAS runs, BLAS's own threads are one
define void @af_blas_enter() nounwind {
entry:
  %get = load ptr, ptr @af_blas_get
  %absent = icmp eq ptr %get, null
  br i1 %absent, label %done, label %known
known:
  call void @spin_lock(ptr @blas.lock)
  %users = load i64, ptr @blas.users
  %users.more = add i64 %users, 1
  store i64 %users.more, ptr @blas.users
  %first = icmp eq i64 %users, 0
  br i1 %first, label %save, label %unlock
save:
  %threads = call i32 %get()
  store i32 %threads, ptr @blas.saved
  %single = icmp eq i32 %threads, 1
  br i1 %single, label %unlock, label %change
change:
  %set = load ptr, ptr @af_blas_set
  call void %set(i32 1)
  br label %unlock
unlock:
  store atomic i32 0, ptr @blas.lock release, align 4
  br label %done
done:
  ret void
}

define void @af_blas_exit() nounwind {
entry:
  %get = load ptr, ptr @af_blas_get
  %absent = icmp eq ptr %get, null
  br i1 %absent, label %done, label %known
known:
  call void @spin_lock(ptr @blas.lock)
  %users = load i64, ptr @blas.users
  %users.fewer = sub i64 %users, 1
  store i64 %users.fewer, ptr @blas.users
  %last = icmp eq i64 %users.fewer, 0
  br i1 %last, label %restore, label %unlock
restore:
  %saved = load i32, ptr @blas.saved
  %single = icmp eq i32 %saved, 1
  br i1 %single, label %unlock, label %change
change:
  %set = load ptr, ptr @af_blas_set
  call void %set(i32 %saved)
  br label %unlock
unlock:
  store atomic i32 0, ptr @blas.lock release, align 4
  br label %done
done:
  ret void
}

; makes workers and their scratch ready; returns how many participants there can be, the caller included
define internal i64 @prepare(ptr %launch, i64 %wanted) nounwind {
entry:
  %created = load i64, ptr @team.created
  %room = icmp slt i64 %wanted, ${participants}
  %bounded = select i1 %room, i64 %wanted, i64 ${participants}
  %helpers = sub i64 %bounded, 1
  %enough = icmp sge i64 %created, %helpers
  br i1 %enough, label %scratch, label %more
more:
  call void @create_workers(i64 %helpers)
  br label %scratch
scratch:
  %now = load i64, ptr @team.created
  %short = icmp slt i64 %now, %helpers
  %usable = select i1 %short, i64 %now, i64 %helpers
  %bytes.slot = getelementptr i64, ptr %launch, i64 3
  %bytes = load i64, ptr %bytes.slot
  br label %check
check:
  %w = phi i64 [ 0, %scratch ], [ %w.next, %good ]
  %all = icmp eq i64 %w, %usable
  %none = icmp eq i64 %bytes, 0
  %over = or i1 %all, %none
  br i1 %over, label %done, label %one
one:
  %worker = getelementptr [16 x i64], ptr @team.workers, i64 %w
  %memory = getelementptr i64, ptr %worker, i64 2
  %size = getelementptr i64, ptr %worker, i64 3
  %have = load i64, ptr %size
  %fits = icmp uge i64 %have, %bytes
  br i1 %fits, label %good, label %grow
grow:
  %before = load ptr, ptr %memory
  call void @free(ptr %before)
  store ptr null, ptr %memory
  store i64 0, ptr %size
  %code = call i32 @posix_memalign(ptr %memory, i64 64, i64 %bytes)
  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %done, label %grown
grown:
  store i64 %bytes, ptr %size
  br label %good
good:
  %w.next = add i64 %w, 1
  br label %check
done:
  %helped = phi i64 [ %usable, %check ], [ %w, %grow ]
  %result = add i64 %helped, 1
  ret i64 %result
}

; starts threads until there are `count`, or the system refuses; signals stay with the interpreter's threads
define internal void @create_workers(i64 %count) noinline nounwind {
entry:
  %thread = alloca i64
  %all.signals = alloca [128 x i8], align 8
  %old.signals = alloca [128 x i8], align 8
  call void @llvm.memset.p0.i64(ptr %all.signals, i8 -1, i64 128, i1 false)
  %set = call i32 @pthread_sigmask(i32 2, ptr %all.signals, ptr %old.signals)
  br label %check
check:
  %created = load i64, ptr @team.created
  %enough = icmp sge i64 %created, %count
  br i1 %enough, label %done, label %one
one:
  %worker = getelementptr [16 x i64], ptr @team.workers, i64 %created
  %number = getelementptr i64, ptr %worker, i64 1
  %number.value = add i64 %created, 1
  store i64 0, ptr %worker
  store i64 %number.value, ptr %number
  %code = call i32 @pthread_create(ptr %thread, ptr null, ptr @af_pool_worker, ptr %worker)
  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %done, label %made
made:
  store i64 %number.value, ptr @team.created
  %id = load i64, ptr %thread
  %named = call i32 @pthread_setname_np(i64 %id, ptr @team.name)
  %detached = call i32 @pthread_detach(i64 %id)
  br label %check
done:
  %reset = call i32 @pthread_sigmask(i32 2, ptr %old.signals, ptr null)
  ret void
}

define ptr @af_pool_worker(ptr %worker) nounwind {
entry:
  %number.slot = getelementptr i64, ptr %worker, i64 1
  %number = load i64, ptr %number.slot
  %memory = getelementptr i64, ptr %worker, i64 2
  br label %wait
wait:
  call void @await_go(ptr %worker)
  store atomic i32 0, ptr %worker monotonic, align 4
  %launch = load ptr, ptr @team.job
  %tables = load ptr, ptr getelementptr (i8, ptr @team.job, i64 8)
  %parts = load i64, ptr getelementptr (i8, ptr @team.job, i64 16)
  %scratch = load ptr, ptr %memory
  call void @run_part(ptr %launch, ptr %tables, i64 %number, i64 %parts, ptr %scratch)
  %old = atomicrmw sub ptr @team.pending, i32 1 acq_rel
  ; the top bit says that the caller sleeps: 0x80000001 is the last worker of a sleeping caller
  %wanted = icmp eq i32 %old, -2147483647
  br i1 %wanted, label %wake, label %wait
wake:
  call void @futex_wake(ptr @team.pending)
  br label %wait
}

; returns when the word is 1
define internal void @await_go(ptr %word) nounwind {
entry:
  %spins = load atomic i32, ptr @af_spins monotonic, align 4
  br label %spin
spin:
  %n = phi i32 [ 0, %entry ], [ %n.next, %relaxed ]
  %now = load atomic i32, ptr %word acquire, align 4
  %go = icmp eq i32 %now, 1
  br i1 %go, label %done, label %idle
idle:
  %tired = icmp sge i32 %n, %spins
  br i1 %tired, label %doze, label %relaxed
relaxed:
  ${relax}
  %n.next = add i32 %n, 1
  br label %spin
doze:
  %pair = cmpxchg ptr %word, i32 0, i32 2 acq_rel acquire
  %slept = extractvalue { i32, i1 } %pair, 1
  br i1 %slept, label %sleep, label %done
sleep:
  call void @futex_wait(ptr %word, i32 2)
  %after = load atomic i32, ptr %word acquire, align 4
  %still = icmp eq i32 %after, 2
  br i1 %still, label %sleep, label %done
done:
  ret void
}

; returns when every worker of the job has finished
define internal void @join() nounwind {
entry:
  %spins = load atomic i32, ptr @af_spins monotonic, align 4
  br label %spin
spin:
  %n = phi i32 [ 0, %entry ], [ %n.next, %relaxed ]
  %left = load atomic i32, ptr @team.pending acquire, align 4
  %over = icmp eq i32 %left, 0
  br i1 %over, label %done, label %waiting
waiting:
  %tired = icmp sge i32 %n, %spins
  br i1 %tired, label %doze, label %relaxed
relaxed:
  ${relax}
  %n.next = add i32 %n, 1
  br label %spin
doze:
  %marked = atomicrmw or ptr @team.pending, i32 -2147483648 acq_rel
  br label %look
look:
  %now = load atomic i32, ptr @team.pending acquire, align 4
  %ended = icmp eq i32 %now, -2147483648
  br i1 %ended, label %done, label %sleep
sleep:
  call void @futex_wait(ptr @team.pending, i32 %now)
  br label %look
done:
  ret void
}

; the blocks of participant `part` of `parts`
define internal void @run_part(ptr %launch, ptr %tables, i64 %part, i64 %parts, ptr %scratch) nounwind {
entry:
  %count = load i64, ptr %launch
  %units.slot = getelementptr i64, ptr %launch, i64 2
  %units = load i64, ptr %units.slot
  %phases = getelementptr i64, ptr %launch, i64 4
  %share = udiv i64 %units, %parts
  %rest = urem i64 %units, %parts
  %early = icmp ult i64 %part, %rest
  %ahead = select i1 %early, i64 %part, i64 %rest
  %even = mul i64 %share, %part
  %low = add i64 %even, %ahead
  %extra = zext i1 %early to i64
  %length = add i64 %share, %extra
  %high = add i64 %low, %length
  br label %check
check:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %end = icmp eq i64 %i, %count
  br i1 %end, label %done, label %one
one:
  %phase = getelementptr [5 x i64], ptr %phases, i64 %i
  %begin = call i64 @first_block(ptr %phase, i64 %low)
  %stop = call i64 @first_block(ptr %phase, i64 %high)
  %some = icmp ult i64 %begin, %stop
  br i1 %some, label %run, label %next
run:
  %function = load ptr, ptr %phase
  %table.slot = getelementptr i64, ptr %phase, i64 4
  %table.number = load i64, ptr %table.slot
  %table.at = getelementptr ptr, ptr %tables, i64 %table.number
  %table = load ptr, ptr %table.at
  call void %function(ptr %table, i64 %begin, i64 %stop, ptr %scratch)
  br label %next
next:
  %i.next = add i64 %i, 1
  br label %check
done:
  ret void
}

; the first block of a phase that starts at or after `unit`; `blocks` when there is none
define internal i64 @first_block(ptr %phase, i64 %unit) alwaysinline nounwind {
  %blocks.slot = getelementptr i64, ptr %phase, i64 1
  %blocks = load i64, ptr %blocks.slot
  %weight.slot = getelementptr i64, ptr %phase, i64 2
  %weight = load i64, ptr %weight.slot
  %base.slot = getelementptr i64, ptr %phase, i64 3
  %base = load i64, ptr %base.slot
  %after = icmp ugt i64 %unit, %base
  %difference = sub i64 %unit, %base
  %into = select i1 %after, i64 %difference, i64 0
  %weight.less = sub i64 %weight, 1
  %rounded = add i64 %into, %weight.less
  %block = udiv i64 %rounded, %weight
  %within = icmp ult i64 %block, %blocks
  %result = select i1 %within, i64 %block, i64 %blocks
  ret i64 %result
}

define internal void @spin_lock(ptr %lock) nounwind {
entry:
  br label %try
try:
  %pair = cmpxchg ptr %lock, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %pair, 1
  br i1 %got, label %done, label %again
again:
  ${relax}
  br label %try
done:
  ret void
}

; 128 and 129 are FUTEX_WAIT and FUTEX_WAKE, private to the process
define internal void @futex_wait(ptr %word, i32 %value) nounwind {
  %value.wide = zext i32 %value to i64
  %code = call i64 (i64, ...) @syscall(i64 ${futex}, ptr %word, i64 128, i64 %value.wide, ptr null)
  ret void
}

define internal void @futex_wake(ptr %word) nounwind {
  %code = call i64 (i64, ...) @syscall(i64 ${futex}, ptr %word, i64 129, i64 1, ptr null)
  ret void
}
