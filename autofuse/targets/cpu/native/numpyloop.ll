; Calls a loop of NumPy's (numpyloops.py), and Python's callback where the loop finds no result. The box, in words of 64
; bits: callback, loop, its data, how many operands, how many arguments, how many extents;
;   for each argument: number of its buffer (-1: none), bytes behind that, floats of 32 bits to convert, offset in the
;   worker's memory (-1: it is used where it lies);
;   then extents and strides.
%Argument = type { i64, i64, i64, i64 }

define internal void @widen(ptr %from, ptr %to, i64 %count) nounwind {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %one ]
  %all = icmp eq i64 %i, %count
  br i1 %all, label %done, label %one
one:
  %from.at = getelementptr float, ptr %from, i64 %i
  %narrow = load float, ptr %from.at
  %wide = fpext float %narrow to double
  %to.at = getelementptr double, ptr %to, i64 %i
  store double %wide, ptr %to.at
  %i.next = add i64 %i, 1
  br label %next
done:
  ret void
}

define internal void @narrow(ptr %from, ptr %to, i64 %count) nounwind {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %one ]
  %all = icmp eq i64 %i, %count
  br i1 %all, label %done, label %one
one:
  %from.at = getelementptr double, ptr %from, i64 %i
  %wide = load double, ptr %from.at
  %narrow = fptrunc double %wide to float
  %to.at = getelementptr float, ptr %to, i64 %i
  store float %narrow, ptr %to.at
  %i.next = add i64 %i, 1
  br label %next
done:
  ret void
}

define internal ptr @lying(ptr %argument, ptr %buffers) nounwind {
entry:
  %number = load i64, ptr %argument
  %offset.at = getelementptr %Argument, ptr %argument, i64 0, i32 1
  %offset = load i64, ptr %offset.at
  %buffer.at = getelementptr ptr, ptr %buffers, i64 %number
  %buffer = load ptr, ptr %buffer.at
  %place = getelementptr i8, ptr %buffer, i64 %offset
  ret ptr %place
}

define void @$name(ptr %buffers, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %table = alloca ptr, i64 $most
  %slot = getelementptr ptr, ptr %buffers, i64 $buffers
  %box = load ptr, ptr %slot
  %loop.at = getelementptr ptr, ptr %box, i64 1
  %loop = load ptr, ptr %loop.at
  %data.at = getelementptr ptr, ptr %box, i64 2
  %data = load ptr, ptr %data.at
  %operands.at = getelementptr i64, ptr %box, i64 3
  %operands = load i64, ptr %operands.at
  %count.at = getelementptr i64, ptr %box, i64 4
  %count = load i64, ptr %count.at
  %dimensions.at = getelementptr i64, ptr %box, i64 5
  %dimensions = load i64, ptr %dimensions.at
  %arguments = getelementptr i64, ptr %box, i64 6
  %extents = getelementptr %Argument, ptr %arguments, i64 %count
  %strides = getelementptr i64, ptr %extents, i64 %dimensions
  br label %argument

argument:
  %k = phi i64 [ 0, %entry ], [ %k.next, %argument.end ]
  %argument.at = getelementptr %Argument, ptr %arguments, i64 %k
  %own.at = getelementptr %Argument, ptr %argument.at, i64 0, i32 3
  %own = load i64, ptr %own.at
  %lies.there = icmp eq i64 %own, -1
  br i1 %lies.there, label %there, label %here
there:
  %place = call ptr @lying(ptr %argument.at, ptr %buffers)
  br label %argument.end
here:
  %memory = getelementptr i8, ptr %scratch, i64 %own
  %floats.at = getelementptr %Argument, ptr %argument.at, i64 0, i32 2
  %floats = load i64, ptr %floats.at
  %is.operand = icmp ult i64 %k, %operands
  br i1 %is.operand, label %convert, label %argument.end
convert:
  %source = call ptr @lying(ptr %argument.at, ptr %buffers)
  call void @widen(ptr %source, ptr %memory, i64 %floats)
  br label %argument.end
argument.end:
  %pointer = phi ptr [ %place, %there ], [ %memory, %here ], [ %memory, %convert ]
  %entry.at = getelementptr ptr, ptr %table, i64 %k
  store ptr %pointer, ptr %entry.at
  %k.next = add i64 %k, 1
  %all = icmp eq i64 %k.next, %count
  br i1 %all, label %call, label %argument

; the loop moves the pointers of its table
call:
  %cleared = call i32 @feclearexcept(i32 1)
  call void %loop(ptr %table, ptr %extents, ptr %strides, ptr %data)
  %flags = call i32 @fetestexcept(i32 1)
  %has.results = icmp eq i32 %flags, 0
  br i1 %has.results, label %result, label %python

result:
  %r = phi i64 [ %operands, %call ], [ %r.next, %result.end ]
  %result.at = getelementptr %Argument, ptr %arguments, i64 %r
  %made.at = getelementptr %Argument, ptr %result.at, i64 0, i32 2
  %made = load i64, ptr %made.at
  %is.wide = icmp eq i64 %made, 0
  br i1 %is.wide, label %result.end, label %back
back:
  %from.at = getelementptr %Argument, ptr %result.at, i64 0, i32 3
  %from.offset = load i64, ptr %from.at
  %from = getelementptr i8, ptr %scratch, i64 %from.offset
  %target = call ptr @lying(ptr %result.at, ptr %buffers)
  call void @narrow(ptr %from, ptr %target, i64 %made)
  br label %result.end
result.end:
  %r.next = add i64 %r, 1
  %all.results = icmp eq i64 %r.next, %count
  br i1 %all.results, label %done, label %result

python:
  %function = load ptr, ptr %box
  %failed = call i64 %function(ptr %buffers)
  %stop.at = getelementptr ptr, ptr %buffers, i64 -1
  %stop = load ptr, ptr %stop.at
  %before = load i64, ptr %stop
  %after = or i64 %before, %failed
  store i64 %after, ptr %stop
  br label %done
done:
  ret void
}
