; C[m,n] = alpha * op(A)[m,k] * op(B)[k,n] + beta * C, all row-major, op transposing where its flag is set. C is not
; read when beta is 0. A row-major matrix is the column-major transpose, so gemm gets the operands swapped. Leading
; dimensions are raised to what gemm's checks ask for where it does not matter (one row, k = 0). Sizes below 2**31.
define internal void @af_${t}gemm(i1 %ta, i1 %tb, i64 %m, i64 %n, i64 %k, ${real} %alpha, ptr %a, i64 %lda, ptr %b, i64 %ldb, ${real} %beta, ptr %c, i64 %ldc) nounwind {
entry:
  %m.at = alloca i32
  %n.at = alloca i32
  %k.at = alloca i32
  %lda.at = alloca i32
  %ldb.at = alloca i32
  %ldc.at = alloca i32
  %ta.at = alloca i8
  %tb.at = alloca i8
  %alpha.at = alloca ${real}
  %beta.at = alloca ${real}
  %no.rows = icmp sle i64 %m, 0
  %no.columns = icmp sle i64 %n, 0
  %nothing = or i1 %no.rows, %no.columns
  br i1 %nothing, label %done, label %some
some:
  store ${real} %alpha, ptr %alpha.at
  store ${real} %beta, ptr %beta.at
  %lda.need = select i1 %ta, i64 %m, i64 %k
  %ldb.need = select i1 %tb, i64 %k, i64 %n
  %lda.most = call i64 @llvm.smax.i64(i64 %lda, i64 %lda.need)
  %ldb.most = call i64 @llvm.smax.i64(i64 %ldb, i64 %ldb.need)
  %ldc.most = call i64 @llvm.smax.i64(i64 %ldc, i64 %n)
  %lda.good = call i64 @llvm.smax.i64(i64 %lda.most, i64 1)
  %ldb.good = call i64 @llvm.smax.i64(i64 %ldb.most, i64 1)
  %m.int = trunc i64 %m to i32
  %n.int = trunc i64 %n to i32
  %k.int = trunc i64 %k to i32
  %lda.int = trunc i64 %lda.good to i32
  %ldb.int = trunc i64 %ldb.good to i32
  %ldc.int = trunc i64 %ldc.most to i32
  store i32 %m.int, ptr %m.at
  store i32 %n.int, ptr %n.at
  store i32 %k.int, ptr %k.at
  store i32 %lda.int, ptr %lda.at
  store i32 %ldb.int, ptr %ldb.at
  store i32 %ldc.int, ptr %ldc.at
  %beta.zero = fcmp oeq ${real} %beta, 0.0
  %one.row = icmp eq i64 %m, 1
  %one.column = icmp eq i64 %n, 1
  %one = or i1 %one.row, %one.column
  %inner = icmp sgt i64 %k, 0
  %vector = and i1 %one, %inner
  br i1 %vector, label %strides, label %gemm

; matrix times vector: y has `length` elements, `step` apart; gemv's own beta = 0 would keep a NaN in y
strides:
  %length = select i1 %one.row, i64 %n, i64 %m
  %step = select i1 %one.row, i64 1, i64 %ldc
  br i1 %beta.zero, label %clear, label %which
clear:
  %i = phi i64 [ 0, %strides ], [ %i.next, %clear ]
  %offset = mul i64 %i, %step
  %y.at = getelementptr ${real}, ptr %c, i64 %offset
  store ${real} 0.0, ptr %y.at
  %i.next = add i64 %i, 1
  %cleared = icmp eq i64 %i.next, %length
  br i1 %cleared, label %which, label %clear
which:
  br i1 %one.row, label %row, label %column
; the increments of x and y go where gemm keeps the leading dimensions it does not need
row:
  %x.row = select i1 %ta, i64 %lda, i64 1
  %x.row.int = trunc i64 %x.row to i32
  store i32 %x.row.int, ptr %lda.at
  store i32 1, ptr %ldc.at
  %op.row = select i1 %tb, i8 84, i8 78
  store i8 %op.row, ptr %tb.at
  %rows.row = select i1 %tb, ptr %k.at, ptr %n.at
  %columns.row = select i1 %tb, ptr %n.at, ptr %k.at
  call void @af_blas_${t}gemv(ptr %tb.at, ptr %rows.row, ptr %columns.row, ptr %alpha.at, ptr %b, ptr %ldb.at, ptr %a, ptr %lda.at, ptr %beta.at, ptr %c, ptr %ldc.at)
  ret void
column:
  %x.column = select i1 %tb, i64 1, i64 %ldb
  %x.column.int = trunc i64 %x.column to i32
  store i32 %x.column.int, ptr %ldb.at
  %y.step = trunc i64 %ldc to i32
  store i32 %y.step, ptr %ldc.at
  %op.column = select i1 %ta, i8 78, i8 84
  store i8 %op.column, ptr %ta.at
  %rows.column = select i1 %ta, ptr %m.at, ptr %k.at
  %columns.column = select i1 %ta, ptr %k.at, ptr %m.at
  call void @af_blas_${t}gemv(ptr %ta.at, ptr %rows.column, ptr %columns.column, ptr %alpha.at, ptr %a, ptr %lda.at, ptr %b, ptr %ldb.at, ptr %beta.at, ptr %c, ptr %ldc.at)
  ret void

gemm:
  %op.a = select i1 %ta, i8 84, i8 78
  %op.b = select i1 %tb, i8 84, i8 78
  store i8 %op.a, ptr %ta.at
  store i8 %op.b, ptr %tb.at
  call void @af_blas_${t}gemm(ptr %tb.at, ptr %ta.at, ptr %n.at, ptr %m.at, ptr %k.at, ptr %alpha.at, ptr %b, ptr %ldb.at, ptr %a, ptr %lda.at, ptr %beta.at, ptr %c, ptr %ldc.at)
  br label %done
done:
  ret void
}
