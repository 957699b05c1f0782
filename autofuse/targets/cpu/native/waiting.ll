; Ways to wait: spinning with a clock, futexes, a lock for a few instructions.

declare i64 @syscall(i64, ...)
declare i32 @clock_gettime(i32, ptr)
${relax_declare}

; whether `patience` nanoseconds have passed since the first call with this clock, which holds 0 then; `n` counts calls
define internal i1 @out_of_patience(i32 %n, ptr %clock, i64 %patience) alwaysinline nounwind {
entry:
  %phase = and i32 %n, 15
  %due = icmp eq i32 %phase, 15
  br i1 %due, label %read, label %no
read:
  %result = call i1 @has_passed(ptr %clock, i64 %patience)
  ret i1 %result
no:
  ret i1 false
}

define internal i1 @has_passed(ptr %clock, i64 %patience) noinline nounwind {
entry:
  %now = call i64 @now()
  %begun = load i64, ptr %clock
  %fresh = icmp eq i64 %begun, 0
  br i1 %fresh, label %first, label %later
first:
  store i64 %now, ptr %clock
  br label %later
later:
  %start = phi i64 [ %begun, %entry ], [ %now, %first ]
  %spent = sub i64 %now, %start
  %passed = icmp sge i64 %spent, %patience
  ret i1 %passed
}

; nanoseconds of the monotonic clock
define internal i64 @now() nounwind {
  %time = alloca [2 x i64]
  %code = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %nanoseconds.at = getelementptr i64, ptr %time, i64 1
  %nanoseconds = load i64, ptr %nanoseconds.at
  %scaled = mul i64 %seconds, 1000000000
  %total = add i64 %scaled, %nanoseconds
  ret i64 %total
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
; `most`: seconds and nanoseconds; null = as long as it takes
define internal void @futex_wait(ptr %word, i32 %value, ptr %most) nounwind {
  %value.wide = zext i32 %value to i64
  %code = call i64 (i64, ...) @syscall(i64 ${futex}, ptr %word, i64 128, i64 %value.wide, ptr %most)
  ret void
}

define internal void @futex_wake(ptr %word) nounwind {
  %code = call i64 (i64, ...) @syscall(i64 ${futex}, ptr %word, i64 129, i64 1, ptr null)
  ret void
}
