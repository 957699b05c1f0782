; BLAS's own threads: one while any plan that calls BLAS runs, since the pool's threads call it.

@af_blas_get = global ptr null
@af_blas_set = global ptr null

@blas.lock = internal global i32 0, align 128
@blas.users = internal global i64 0
@blas.saved = internal global i32 0

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

; in the child of a fork nobody uses BLAS yet
define internal void @blas_after_fork() nounwind {
entry:
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
