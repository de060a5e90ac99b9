! The Fortran side of collectives.c: ROUNDS END: rounds of the same 11 collectives that count, in the same order, checked.
! -DBINDING=1: mpif.h, 2: use mpi, 3: use mpi_f08. Prints bad=N.
program collectives
#if BINDING == 1
  implicit none
  include 'mpif.h'
#elif BINDING == 2
  use mpi
  implicit none
#else
  use mpi_f08
  implicit none
#endif
  interface
    subroutine c_exit(status) bind(c, name='exit')
      integer, value :: status
    end subroutine
    subroutine c_quick_exit(status) bind(c, name='_exit')
      integer, value :: status
    end subroutine
    subroutine c_abort() bind(c, name='abort')
    end subroutine
    integer function c_raise(signal) bind(c, name='raise')
      integer, value :: signal
    end function
  end interface
#if BINDING == 3
  type(MPI_Comm) :: same, part
  type(MPI_Datatype) :: types(16)
#else
  integer :: same, part, types(16)
#endif
  integer :: rounds, i, ierr, rank, size, bad, one, total
  integer :: counts(16), at(16), sent(16), got(16), k
  character(len=16) :: argument
  call get_command_argument(1, argument)
  read (argument, *) rounds
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierr)
  call MPI_Comm_dup(MPI_COMM_WORLD, same, ierr)
  call MPI_Comm_split(MPI_COMM_WORLD, min(rank, 1), 0, part, ierr)
  bad = 0
  do i = 1, rounds
    do k = 1, size
      counts(k) = 1
      at(k) = size - k
      sent(k) = 100 * rank + k - 1
      types(k) = MPI_INTEGER
    end do
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call MPI_Allreduce(rank, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    if (total /= size * (size - 1) / 2) bad = bad + 1
    total = rank
    call MPI_Allreduce(MPI_IN_PLACE, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    if (total /= size * (size - 1) / 2) bad = bad + 1
    call MPI_Allgather(rank, 1, MPI_INTEGER, got, 1, MPI_INTEGER, MPI_COMM_WORLD, ierr)
    if (got(size) /= size - 1) bad = bad + 1
    call MPI_Allgatherv(rank, 1, MPI_INTEGER, got, counts, at, MPI_INTEGER, MPI_COMM_WORLD, ierr)
    if (got(1) /= size - 1) bad = bad + 1
    call MPI_Alltoall(sent, 1, MPI_INTEGER, got, 1, MPI_INTEGER, MPI_COMM_WORLD, ierr)
    if (got(size) /= 100 * (size - 1) + rank) bad = bad + 1
    call MPI_Alltoallv(sent, counts, at, MPI_INTEGER, got, counts, at, MPI_INTEGER, MPI_COMM_WORLD, ierr)
    if (got(1) /= 100 * (size - 1) + size - 1 - rank) bad = bad + 1
    call MPI_Reduce_scatter(sent, one, counts, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    if (one /= 100 * size * (size - 1) / 2 + size * rank) bad = bad + 1
    at(1:size) = 4 * at(1:size)
    call MPI_Alltoallw(sent, counts, at, types, got, counts, at, types, MPI_COMM_WORLD, ierr)
    if (got(1) /= 100 * (size - 1) + size - 1 - rank) bad = bad + 1
    call MPI_Reduce_scatter_block(sent, one, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    if (one /= 100 * size * (size - 1) / 2 + size * rank) bad = bad + 1
    call MPI_Barrier(same, ierr)
    call MPI_Bcast(total, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
    if (size > 1) call MPI_Barrier(part, ierr)
  end do
  print '(a,i0)', 'bad=', bad
  flush (6)
  if (rank == 0) then
    call get_command_argument(2, argument)
    select case (argument)
    case ('exit')
      call c_exit(5)
    case ('_exit')
      call c_quick_exit(5)
    case ('abort')
      call c_abort()
    case ('MPI_Abort')
      call MPI_Abort(MPI_COMM_WORLD, 5, ierr)
    case ('kill')
      ierr = c_raise(9)
    end select
  end if
  call MPI_Finalize(ierr)
end program
