; The team of the fork-join pool: worker threads that help with jobs when they are awake. Nobody depends on them.
;
; @team.control says all about the job. Low half, which is also a futex: workers inside (10 bits), open (1 bit), the
; caller sleeps until the last has left (1 bit). High half: participants (10 bits), number of the job (22 bits). A
; worker enters by a compare-and-swap, which only succeeds while the job is open, and may read @team.job from then on
; until it leaves. The caller closes the job when no chunk is left and waits for those inside.
;
; A worker without a job spins for a while, longer while a plan is running, then sleeps on a word of its own. One that
; sleeps is woken only when enough work has been done without it: waking takes longer than many kernels run. It may
; then run where the caller may, except on the caller's own CPU: Linux likes to put it there, in the caller's place.
;
; When the caller had to wait for a worker for much longer than the whole job took, something else runs on that
; worker's CPU. The caller then runs alone for eight times as long as it waited, a tenth of a second at most.

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i64 @pthread_self()
declare i32 @pthread_setname_np(i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @posix_memalign(ptr, i64, i64)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_getcpu()
declare void @free(ptr)
declare i32 @fesetenv(ptr)
declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; settings, see threadcount.py: most participants; work in tasks that is worth waking a worker; nanoseconds that a worker
; spins between plans, that it spins during a plan, that a caller spins for those who are still at work
@af_threads = global i32 1, align 128
@af_wake_work = global i64 0
@af_patience = global [3 x i64] zeroinitializer

@team.control = internal global i64 0, align 128
@team.plans = internal global i32 0, align 128
@team.created = internal global i64 0, align 128
; work done without workers that sleep, and when the last of it was begun
@team.missed = internal global i64 0
@team.missed.at = internal global i64 0
; when the job was opened; until when the caller runs alone, 0 = it need not
@team.opened = internal global i64 0
@af_alone_until = global i64 0
; the CPUs that woken workers may run on; nothing when it is 0
@team.cpus = internal global [128 x i8] zeroinitializer
@team.cpus.known = internal global i32 0
; per worker, on cache lines of its own: 1 while it sleeps, its number, its scratch, the size of that, its thread
@team.workers = internal global [${workers} x [16 x i64]] zeroinitializer, align 128
@team.name = internal constant [9 x i8] c"autofuse\00"

; to be called in the child of a fork: the threads are gone, so is whoever held the locks
define void @af_pool_after_fork() nounwind {
  store i32 0, ptr @team.lock
  store i64 0, ptr @team.control
  store i32 0, ptr @team.plans
  store i64 0, ptr @team.created
  store i64 0, ptr @af_alone_until
  call void @blas_after_fork()
  ret void
}

; how many worker threads exist
define i64 @af_pool_workers() nounwind {
  %created = load i64, ptr @team.created
  ret i64 %created
}

; between these two, workers expect another job soon
define internal void @plan_enter() nounwind {
  %before = atomicrmw add ptr @team.plans, i32 1 monotonic
  ret void
}

define internal void @plan_exit() nounwind {
  %before = atomicrmw sub ptr @team.plans, i32 1 monotonic
  ret void
}

; how many participants, at most `wanted`, the launch shall have, the caller included; all have scratch then. Workers
; that sleep, or do not exist, count only when it is time to wake them.
define internal i64 @team_gather(ptr %launch, i64 %wanted) nounwind {
begin:
  %until = load i64, ptr @af_alone_until
  %friendly = icmp eq i64 %until, 0
  br i1 %friendly, label %entry, label %wary
wary:
  %time = call i64 @now()
  %early = icmp slt i64 %time, %until
  br i1 %early, label %alone, label %forgive
forgive:
  store i64 0, ptr @af_alone_until
  br label %entry
entry:
  %room = icmp slt i64 %wanted, ${participants}
  %bounded = select i1 %room, i64 %wanted, i64 ${participants}
  %helpers = sub i64 %bounded, 1
  %created = load i64, ptr @team.created
  %enough = icmp sge i64 %created, %helpers
  %there = select i1 %enough, i64 %helpers, i64 %created
  br label %check
check:
  %w = phi i64 [ 0, %entry ], [ %w.next, %one ]
  %awake = phi i64 [ 0, %entry ], [ %awake.next, %one ]
  %counted = icmp eq i64 %w, %there
  br i1 %counted, label %judge, label %one
one:
  %worker = getelementptr [16 x i64], ptr @team.workers, i64 %w
  %asleep = load atomic i32, ptr %worker monotonic, align 4
  %up = icmp eq i32 %asleep, 0
  %up.wide = zext i1 %up to i64
  %awake.next = add i64 %awake, %up.wide
  %w.next = add i64 %w, 1
  br label %check
judge:
  %all.awake = icmp eq i64 %awake, %helpers
  br i1 %all.awake, label %ready, label %short
short:
  %work.slot = getelementptr i64, ptr %launch, i64 4
  %work = load i64, ptr %work.slot
  %instant = call i64 @now()
  %last = load i64, ptr @team.missed.at
  store i64 %instant, ptr @team.missed.at
  %since = sub i64 %instant, %last
  ; work long ago says nothing about work to come
  %recent = icmp slt i64 %since, 500000
  %missed.before = load i64, ptr @team.missed
  %missed.recent = select i1 %recent, i64 %missed.before, i64 0
  %missed = add i64 %missed.recent, %work
  %worth = load i64, ptr @af_wake_work
  %wake = icmp sge i64 %missed, %worth
  %missed.kept = select i1 %wake, i64 0, i64 %missed
  store i64 %missed.kept, ptr @team.missed
  br i1 %wake, label %create, label %no.wake
no.wake:
  %some = icmp ne i64 %awake, 0
  br i1 %some, label %ready, label %alone
alone:
  ret i64 1
create:
  %others = call i1 @survey_cpus()
  br i1 %others, label %add, label %alone
add:
  br i1 %enough, label %ready, label %more
more:
  call void @create_workers(i64 %helpers)
  br label %ready
ready:
  %rouse = phi i64 [ 0, %judge ], [ 0, %no.wake ], [ 1, %add ], [ 1, %more ]
  store i64 %rouse, ptr getelementptr (i8, ptr @team.job, i64 16)
  %now = load i64, ptr @team.created
  %few = icmp slt i64 %now, %helpers
  %usable = select i1 %few, i64 %now, i64 %helpers
  %bytes.slot = getelementptr i64, ptr %launch, i64 3
  %bytes = load i64, ptr %bytes.slot
  %supplied = call i64 @provide_scratch(i64 %usable, i64 %bytes)
  %result = add i64 %supplied, 1
  ret i64 %result
}

; notes the CPUs this thread may run on, but the one it is on; false if there is no other
define internal i1 @survey_cpus() noinline nounwind {
entry:
  store i32 0, ptr @team.cpus.known
  %code = call i32 @sched_getaffinity(i32 0, i64 128, ptr @team.cpus)
  %unknown = icmp slt i32 %code, 0
  %cpu = call i32 @sched_getcpu()
  %beyond = icmp ugt i32 %cpu, 1023
  %skip = or i1 %unknown, %beyond
  br i1 %skip, label %yes, label %remove
remove:
  %byte = lshr i32 %cpu, 3
  %at = getelementptr i8, ptr @team.cpus, i32 %byte
  %bit.number = and i32 %cpu, 7
  %bit.number.byte = trunc i32 %bit.number to i8
  %bit = shl i8 1, %bit.number.byte
  %others = xor i8 %bit, -1
  %before = load i8, ptr %at
  %after = and i8 %before, %others
  store i8 %after, ptr %at
  br label %check
check:
  %i = phi i64 [ 0, %remove ], [ %i.next, %check ]
  %sum = phi i64 [ 0, %remove ], [ %sum.next, %check ]
  %word.at = getelementptr i64, ptr @team.cpus, i64 %i
  %word = load i64, ptr %word.at
  %sum.next = or i64 %sum, %word
  %i.next = add i64 %i, 1
  %end = icmp eq i64 %i.next, 16
  br i1 %end, label %judge, label %check
judge:
  %some = icmp ne i64 %sum.next, 0
  %known = zext i1 %some to i32
  store i32 %known, ptr @team.cpus.known
  ret i1 %some
yes:
  ret i1 true
}

; lets a worker run on the CPUs of the survey
define internal void @place(ptr %worker) nounwind {
entry:
  %known = load i32, ptr @team.cpus.known
  %some = icmp ne i32 %known, 0
  br i1 %some, label %set, label %done
set:
  %thread.slot = getelementptr i64, ptr %worker, i64 4
  %thread = load i64, ptr %thread.slot
  %code = call i32 @pthread_setaffinity_np(i64 %thread, i64 128, ptr @team.cpus)
  br label %done
done:
  ret void
}

; makes each of the first `count` workers have scratch of that size; returns for how many that went well
define internal i64 @provide_scratch(i64 %count, i64 %bytes) nounwind {
entry:
  %none = icmp eq i64 %bytes, 0
  br i1 %none, label %all, label %check
all:
  ret i64 %count
check:
  %w = phi i64 [ 0, %entry ], [ %w.next, %good ]
  %end = icmp eq i64 %w, %count
  br i1 %end, label %done, label %one
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
  ret i64 %w
}

; wakes those of participants 2m+1 and 2m+2 that sleep, if the job shall: they do the same for theirs, as a tree
define internal void @wake_next(i64 %m, i64 %parts) nounwind {
entry:
  %rouse = load i64, ptr getelementptr (i8, ptr @team.job, i64 16)
  %wanted = icmp ne i64 %rouse, 0
  br i1 %wanted, label %begin, label %done
begin:
  ; participant n is worker n - 1
  %first = mul i64 %m, 2
  %after = add i64 %first, 2
  %workers = sub i64 %parts, 1
  br label %check
check:
  %w = phi i64 [ %first, %begin ], [ %w.next, %next ]
  %over = icmp eq i64 %w, %after
  %absent = icmp sge i64 %w, %workers
  %end = or i1 %over, %absent
  br i1 %end, label %done, label %one
one:
  %worker = getelementptr [16 x i64], ptr @team.workers, i64 %w
  %asleep = load atomic i32, ptr %worker monotonic, align 4
  %down = icmp ne i32 %asleep, 0
  br i1 %down, label %wake, label %next
wake:
  call void @place(ptr %worker)
  store atomic i32 0, ptr %worker release, align 4
  call void @futex_wake(ptr %worker)
  br label %next
next:
  %w.next = add i64 %w, 1
  br label %check
done:
  ret void
}

; starts threads until there are `count`, or the system refuses; signals stay with the interpreter's threads
define internal void @create_workers(i64 %count) noinline nounwind {
entry:
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
  %thread = getelementptr i64, ptr %worker, i64 4
  %code = call i32 @pthread_create(ptr %thread, ptr null, ptr @af_pool_worker, ptr %worker)
  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %done, label %made
made:
  store i64 %number.value, ptr @team.created
  %id = load i64, ptr %thread
  %named = call i32 @pthread_setname_np(i64 %id, ptr @team.name)
  %detached = call i32 @pthread_detach(i64 %id)
  call void @place(ptr %worker)
  br label %check
done:
  %reset = call i32 @pthread_sigmask(i32 2, ptr %old.signals, ptr null)
  ret void
}

; lets workers in; whatever they need to know is in place
define internal void @team_open(i64 %parts) nounwind {
  %before = load atomic i64, ptr @team.control monotonic, align 8
  %number = lshr i64 %before, 42
  %number.next = add i64 %number, 1
  %number.high = shl i64 %number.next, 42
  %parts.high = shl i64 %parts, 32
  %high = or i64 %number.high, %parts.high
  %control = or i64 %high, 1024
  %time = call i64 @now()
  store i64 %time, ptr @team.opened
  store atomic i64 %control, ptr @team.control release, align 8
  call void @wake_next(i64 0, i64 %parts)
  ret void
}

; lets nobody in any more, and returns when those inside have left
define internal void @team_close() nounwind {
entry:
  %clock = alloca i64
  %doze.time = alloca [2 x i64]
  %before = atomicrmw and ptr @team.control, i64 -1025 acq_rel
  %inside = and i64 %before, 1023
  %nobody = icmp eq i64 %inside, 0
  br i1 %nobody, label %done, label %begin
begin:
  %patience = load i64, ptr getelementptr (i8, ptr @af_patience, i64 16)
  store i64 0, ptr %clock
  br label %spin
spin:
  %n = phi i32 [ 0, %begin ], [ %n.next, %again ]
  %now = load atomic i64, ptr @team.control acquire, align 8
  %now.inside = and i64 %now, 1023
  %now.nobody = icmp eq i64 %now.inside, 0
  br i1 %now.nobody, label %done, label %again
again:
  ${relax}
  %n.next = add i32 %n, 1
  %tired = call i1 @out_of_patience(i32 %n, ptr %clock, i64 %patience)
  br i1 %tired, label %doze, label %spin
doze:
  %marked = atomicrmw or ptr @team.control, i64 2048 acq_rel
  store i64 0, ptr %doze.time
  %doze.nanoseconds = getelementptr i64, ptr %doze.time, i64 1
  store i64 50000000, ptr %doze.nanoseconds
  %run = load ptr, ptr getelementptr (i8, ptr @team.job, i64 24)
  %runs = icmp ne ptr %run, null
  br label %look
look:
  %then = load atomic i64, ptr @team.control acquire, align 8
  %then.inside = and i64 %then, 1023
  %then.nobody = icmp eq i64 %then.inside, 0
  br i1 %then.nobody, label %waited, label %sleep
sleep:
  %low = trunc i64 %then to i32
  call void @futex_wait(ptr @team.control, i32 %low, ptr %doze.time)
  br i1 %runs, label %signals, label %look
signals:
  call void @look_for_signals(ptr %run)
  br label %look
waited:
  call void @judge_wait(ptr %clock)
  br label %done
done:
  ret void
}

; decides to run alone for a while when the wait since `clock` was much longer than the job until then
define internal void @judge_wait(ptr %clock) noinline nounwind {
entry:
  %now = call i64 @now()
  %begun = load i64, ptr %clock
  %opened = load i64, ptr @team.opened
  %waited = sub i64 %now, %begun
  %worked = sub i64 %begun, %opened
  %twice = shl i64 %worked, 1
  %fair = add i64 %twice, 100000
  %long = icmp sgt i64 %waited, %fair
  br i1 %long, label %leave.them, label %done
leave.them:
  ; the whole process may have been stopped meanwhile, which says nothing about a worker
  %most = call i64 @llvm.smin.i64(i64 %waited, i64 12500000)
  %while = shl i64 %most, 3
  %until = add i64 %now, %while
  store i64 %until, ptr @af_alone_until
  br label %done
done:
  ret void
}

; whether the thread is one of the team; else it is one of Python's
define internal i1 @is_worker() noinline nounwind {
entry:
  %self = call i64 @pthread_self()
  %created = load i64, ptr @team.created
  br label %check
check:
  %w = phi i64 [ 0, %entry ], [ %w.next, %one ]
  %all = icmp uge i64 %w, %created
  br i1 %all, label %no, label %one
one:
  %thread.slot = getelementptr [16 x i64], ptr @team.workers, i64 %w, i64 4
  %thread = load i64, ptr %thread.slot
  %w.next = add i64 %w, 1
  %found = icmp eq i64 %thread, %self
  br i1 %found, label %yes, label %check
yes:
  ret i1 true
no:
  ret i1 false
}

define ptr @af_pool_worker(ptr %worker) nounwind {
entry:
  %number.slot = getelementptr i64, ptr %worker, i64 1
  %number = load i64, ptr %number.slot
  %memory = getelementptr i64, ptr %worker, i64 2
  ; a thread begins with the rounding of the one that made it, which may flush subnormal numbers, as XLA's do; -1 stands
  ; for FE_DFL_ENV
  %usual = call i32 @fesetenv(ptr inttoptr (i64 -1 to ptr))
  br label %wait
wait:
  ; the number of the job that this worker had last; no job has the first value
  %last = phi i64 [ -1, %entry ], [ %last, %enter ], [ %job, %leave ], [ %job, %wake ]
  %open = call i64 @await_job(ptr %worker, i64 %number, i64 %last)
  br label %enter
enter:
  %entered = add i64 %open, 1
  %pair = cmpxchg ptr @team.control, i64 %open, i64 %entered acquire monotonic
  %in = extractvalue { i64, i1 } %pair, 1
  br i1 %in, label %work, label %wait
work:
  %job = lshr i64 %open, 42
  %parts.low = lshr i64 %open, 32
  %parts = and i64 %parts.low, 1023
  %scratch = load ptr, ptr %memory
  call void @wake_next(i64 %number, i64 %parts)
  call void @run_chunks(i64 %number, i64 %parts, ptr %scratch)
  br label %leave
leave:
  %before = atomicrmw sub ptr @team.control, i64 1 acq_rel
  %state = and i64 %before, 4095
  ; the caller sleeps, and this was the last
  %wanted = icmp eq i64 %state, 2049
  br i1 %wanted, label %wake, label %wait
wake:
  call void @futex_wake(ptr @team.control)
  br label %wait
}

; returns the control word of an open job that worker `number` belongs to and has not had yet
define internal i64 @await_job(ptr %word, i64 %number, i64 %last) nounwind {
entry:
  %clock = alloca i64
  br label %begin
begin:
  store i64 0, ptr %clock
  br label %spin
spin:
  %n = phi i32 [ 0, %begin ], [ %n.next, %again ]
  %control = load atomic i64, ptr @team.control acquire, align 8
  %mine = call i1 @is_for(i64 %control, i64 %number, i64 %last)
  br i1 %mine, label %done, label %again
again:
  ${relax}
  %n.next = add i32 %n, 1
  %plans = load atomic i32, ptr @team.plans monotonic, align 4
  %busy = icmp ne i32 %plans, 0
  %patience.at = select i1 %busy, ptr getelementptr (i8, ptr @af_patience, i64 8), ptr @af_patience
  %patience = load i64, ptr %patience.at
  %tired = call i1 @out_of_patience(i32 %n, ptr %clock, i64 %patience)
  br i1 %tired, label %doze, label %spin
doze:
  ; a job that opens now goes on without this worker
  store atomic i32 1, ptr %word seq_cst, align 4
  br label %sleep
sleep:
  call void @futex_wait(ptr %word, i32 1, ptr null)
  %after = load atomic i32, ptr %word acquire, align 4
  %still = icmp eq i32 %after, 1
  br i1 %still, label %sleep, label %begin
done:
  ret i64 %control
}

; whether the control word is that of an open job with a part for worker `number`, other than job `last`
define internal i1 @is_for(i64 %control, i64 %number, i64 %last) alwaysinline nounwind {
  %bit = and i64 %control, 1024
  %open = icmp ne i64 %bit, 0
  %job = lshr i64 %control, 42
  %new = icmp ne i64 %job, %last
  %parts.low = lshr i64 %control, 32
  %parts = and i64 %parts.low, 1023
  %needed = icmp ult i64 %number, %parts
  %some = and i1 %open, %new
  %mine = and i1 %some, %needed
  ret i1 %mine
}
