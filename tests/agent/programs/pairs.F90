! The Fortran side of pairs.c: a round makes 3 sync points, Bcast after Reduce, Scatter after Gather, a Barrier; a Bcast of
! another root and a Reduce of nothing make none. -DBINDING: 1 mpif.h, 2 use mpi, 3 use mpi_f08.
program pairs
#if BINDING == 2
  use mpi
#elif BINDING == 3
  use mpi_f08
#endif
  implicit none
#if BINDING == 1
  include 'mpif.h'
#endif
  integer :: ierr, rank, size, i, one, total, mine, bad, all(16)
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierr)
  one = 1
  bad = 0
  do i = 1, 5
    total = 0
    call MPI_Reduce(one, total, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, ierr)
    call MPI_Bcast(mine, 1, MPI_INTEGER, 1, MPI_COMM_WORLD, ierr)
    call MPI_Bcast(total, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
    if (total /= size) bad = bad + 1
    call MPI_Gather(rank, 1, MPI_INTEGER, all, 1, MPI_INTEGER, 1, MPI_COMM_WORLD, ierr)
    call MPI_Scatter(all, 1, MPI_INTEGER, mine, 1, MPI_INTEGER, 1, MPI_COMM_WORLD, ierr)
    if (mine /= rank) bad = bad + 1
    call MPI_Reduce(one, total, 0, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, ierr)
    call MPI_Bcast(total, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
  end do
  print '(A,I0)', 'bad=', bad
  call MPI_Finalize(ierr)
end program pairs
