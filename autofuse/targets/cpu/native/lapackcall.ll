; Calls a routine of LAPACK's for each matrix of a stack (lapackcalls.py). The box, in words of 64 bits: Python's callback,
; which is not called, routine, how many matrices, how many copies before the routine, how many with those behind it;
;   for each copy: number of its buffer, bytes behind that, steps from matrix to matrix, from row to row and from column to
;   column, rows, columns, bytes of an element, offset in the worker's memory, where columns lie one after the other;
;   for each address that the routine takes: an offset in the worker's memory, or the complement of one in the box;
;   then the numbers that those of the box lead to.
%Copy = type { i64, i64, i64, i64, i64, i64, i64, i64, i64 }

define internal void @copied_4(ptr %from, i64 %from.row, i64 %from.column, ptr %to, i64 %to.row, i64 %to.column, i64 %rows, i64 %columns) nounwind {
entry:
  br label %column
column:
  %j = phi i64 [ 0, %entry ], [ %j.next, %column.end ]
  %from.j = mul i64 %j, %from.column
  %to.j = mul i64 %j, %to.column
  %from.top = getelementptr i8, ptr %from, i64 %from.j
  %to.top = getelementptr i8, ptr %to, i64 %to.j
  br label %row
row:
  %i = phi i64 [ 0, %column ], [ %i.next, %row ]
  %from.i = mul i64 %i, %from.row
  %to.i = mul i64 %i, %to.row
  %from.at = getelementptr i8, ptr %from.top, i64 %from.i
  %to.at = getelementptr i8, ptr %to.top, i64 %to.i
  %element = load i32, ptr %from.at, align 4
  store i32 %element, ptr %to.at, align 4
  %i.next = add i64 %i, 1
  %all.rows = icmp eq i64 %i.next, %rows
  br i1 %all.rows, label %column.end, label %row
column.end:
  %j.next = add i64 %j, 1
  %all.columns = icmp eq i64 %j.next, %columns
  br i1 %all.columns, label %done, label %column
done:
  ret void
}

define internal void @copied_8(ptr %from, i64 %from.row, i64 %from.column, ptr %to, i64 %to.row, i64 %to.column, i64 %rows, i64 %columns) nounwind {
entry:
  br label %column
column:
  %j = phi i64 [ 0, %entry ], [ %j.next, %column.end ]
  %from.j = mul i64 %j, %from.column
  %to.j = mul i64 %j, %to.column
  %from.top = getelementptr i8, ptr %from, i64 %from.j
  %to.top = getelementptr i8, ptr %to, i64 %to.j
  br label %row
row:
  %i = phi i64 [ 0, %column ], [ %i.next, %row ]
  %from.i = mul i64 %i, %from.row
  %to.i = mul i64 %i, %to.row
  %from.at = getelementptr i8, ptr %from.top, i64 %from.i
  %to.at = getelementptr i8, ptr %to.top, i64 %to.i
  %element = load i64, ptr %from.at, align 4
  store i64 %element, ptr %to.at, align 4
  %i.next = add i64 %i, 1
  %all.rows = icmp eq i64 %i.next, %rows
  br i1 %all.rows, label %column.end, label %row
column.end:
  %j.next = add i64 %j, 1
  %all.columns = icmp eq i64 %j.next, %columns
  br i1 %all.columns, label %done, label %column
done:
  ret void
}

define internal void @copied_16(ptr %from, i64 %from.row, i64 %from.column, ptr %to, i64 %to.row, i64 %to.column, i64 %rows, i64 %columns) nounwind {
entry:
  br label %column
column:
  %j = phi i64 [ 0, %entry ], [ %j.next, %column.end ]
  %from.j = mul i64 %j, %from.column
  %to.j = mul i64 %j, %to.column
  %from.top = getelementptr i8, ptr %from, i64 %from.j
  %to.top = getelementptr i8, ptr %to, i64 %to.j
  br label %row
row:
  %i = phi i64 [ 0, %column ], [ %i.next, %row ]
  %from.i = mul i64 %i, %from.row
  %to.i = mul i64 %i, %to.row
  %from.at = getelementptr i8, ptr %from.top, i64 %from.i
  %to.at = getelementptr i8, ptr %to.top, i64 %to.i
  %element = load <2 x i64>, ptr %from.at, align 8
  store <2 x i64> %element, ptr %to.at, align 8
  %i.next = add i64 %i, 1
  %all.rows = icmp eq i64 %i.next, %rows
  br i1 %all.rows, label %column.end, label %row
column.end:
  %j.next = add i64 %j, 1
  %all.columns = icmp eq i64 %j.next, %columns
  br i1 %all.columns, label %done, label %column
done:
  ret void
}

define internal void @copy(ptr %copy, i64 %number, ptr %buffers, ptr %scratch, i1 %is.result) nounwind {
entry:
  %buffer.number = load i64, ptr %copy
  %offset.at = getelementptr %Copy, ptr %copy, i64 0, i32 1
  %offset = load i64, ptr %offset.at
  %step.at = getelementptr %Copy, ptr %copy, i64 0, i32 2
  %step = load i64, ptr %step.at
  %row.at = getelementptr %Copy, ptr %copy, i64 0, i32 3
  %row = load i64, ptr %row.at
  %column.at = getelementptr %Copy, ptr %copy, i64 0, i32 4
  %column = load i64, ptr %column.at
  %rows.at = getelementptr %Copy, ptr %copy, i64 0, i32 5
  %rows = load i64, ptr %rows.at
  %columns.at = getelementptr %Copy, ptr %copy, i64 0, i32 6
  %columns = load i64, ptr %columns.at
  %item.at = getelementptr %Copy, ptr %copy, i64 0, i32 7
  %item = load i64, ptr %item.at
  %memory.at = getelementptr %Copy, ptr %copy, i64 0, i32 8
  %memory = load i64, ptr %memory.at
  %buffer.at = getelementptr ptr, ptr %buffers, i64 %buffer.number
  %buffer = load ptr, ptr %buffer.at
  %stacked = mul i64 %step, %number
  %behind = add i64 %offset, %stacked
  %there = getelementptr i8, ptr %buffer, i64 %behind
  %here = getelementptr i8, ptr %scratch, i64 %memory
  %leading = mul i64 %rows, %item
  %from = select i1 %is.result, ptr %here, ptr %there
  %from.row = select i1 %is.result, i64 %item, i64 %row
  %from.column = select i1 %is.result, i64 %leading, i64 %column
  %to = select i1 %is.result, ptr %there, ptr %here
  %to.row = select i1 %is.result, i64 %row, i64 %item
  %to.column = select i1 %is.result, i64 %column, i64 %leading
  switch i64 %item, label %of.4 [
    i64 8, label %of.8
    i64 16, label %of.16
  ]
of.4:
  call void @copied_4(ptr %from, i64 %from.row, i64 %from.column, ptr %to, i64 %to.row, i64 %to.column, i64 %rows, i64 %columns)
  ret void
of.8:
  call void @copied_8(ptr %from, i64 %from.row, i64 %from.column, ptr %to, i64 %to.row, i64 %to.column, i64 %rows, i64 %columns)
  ret void
of.16:
  call void @copied_16(ptr %from, i64 %from.row, i64 %from.column, ptr %to, i64 %to.row, i64 %to.column, i64 %rows, i64 %columns)
  ret void
}

define internal ptr @address(ptr %box, ptr %addresses, i64 %k, ptr %scratch) nounwind {
entry:
  %at = getelementptr i64, ptr %addresses, i64 %k
  %offset = load i64, ptr %at
  %is.number = icmp slt i64 %offset, 0
  %complement = xor i64 %offset, -1
  %number = getelementptr i8, ptr %box, i64 %complement
  %memory = getelementptr i8, ptr %scratch, i64 %offset
  %address = select i1 %is.number, ptr %number, ptr %memory
  ret ptr %address
}

define void @$name(ptr %buffers, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %slot = getelementptr ptr, ptr %buffers, i64 $buffers
  %box = load ptr, ptr %slot
  %routine.at = getelementptr ptr, ptr %box, i64 1
  %routine = load ptr, ptr %routine.at
  %count.at = getelementptr i64, ptr %box, i64 2
  %count = load i64, ptr %count.at
  %before.at = getelementptr i64, ptr %box, i64 3
  %before = load i64, ptr %before.at
  %all.at = getelementptr i64, ptr %box, i64 4
  %all = load i64, ptr %all.at
  %copies = getelementptr i64, ptr %box, i64 5
  %addresses = getelementptr %Copy, ptr %copies, i64 %all
$loads
  br label %matrix

matrix:
  %m = phi i64 [ 0, %entry ], [ %m.next, %matrix.end ]
  br label %operand
operand:
  %o = phi i64 [ 0, %matrix ], [ %o.next, %operand ]
  %operand.at = getelementptr %Copy, ptr %copies, i64 %o
  call void @copy(ptr %operand.at, i64 %m, ptr %buffers, ptr %scratch, i1 false)
  %o.next = add i64 %o, 1
  %all.operands = icmp eq i64 %o.next, %before
  br i1 %all.operands, label %call, label %operand

call:
  call void %routine($arguments)
  br label %result

result:
  %r = phi i64 [ %before, %call ], [ %r.next, %copied ]
  %all.results = icmp eq i64 %r, %all
  br i1 %all.results, label %matrix.end, label %copied
copied:
  %result.at = getelementptr %Copy, ptr %copies, i64 %r
  call void @copy(ptr %result.at, i64 %m, ptr %buffers, ptr %scratch, i1 true)
  %r.next = add i64 %r, 1
  br label %result

matrix.end:
  %m.next = add i64 %m, 1
  %all.matrices = icmp eq i64 %m.next, %count
  br i1 %all.matrices, label %done, label %matrix
done:
  ret void
}
