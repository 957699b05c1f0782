define void @$name(ptr %buffers, i64 %begin, i64 %end, ptr %scratch) {
  %slot = getelementptr ptr, ptr %buffers, i64 $buffers
  %box = load ptr, ptr %slot
  %function = load ptr, ptr %box
  %failed = call i64 %function(ptr %buffers)
  %stop.at = getelementptr ptr, ptr %buffers, i64 -1
  %stop = load ptr, ptr %stop.at
  %before = load i64, ptr %stop
  %after = or i64 %before, %failed
  store i64 %after, ptr %stop
  ret void
}
