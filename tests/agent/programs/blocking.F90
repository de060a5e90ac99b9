! The Fortran side of blocking.c: some functions of each kind. -DBINDING=1: mpif.h, 2: use mpi, 3: use mpi_f08.
program blocking
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
#if BINDING == 3
  type(MPI_Request) :: request(2)
  type(MPI_Status) :: status
#else
  integer :: request(2), status(MPI_STATUS_SIZE)
#endif
  integer :: ierr, rank, out, got, step
  integer(8) :: begin, end
  character(len=16), parameter :: names(8) = [character(len=16) :: 'nothing', 'Send', 'Recv', 'Sendrecv', 'Wait', &
      'Waitall', 'Bcast', 'Reduce']
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  out = 1
  do step = 1, size(names)
    if (step == 2 .or. step == 5 .or. step == 6) call MPI_Irecv(got, 1, MPI_INTEGER, 0, 0, MPI_COMM_SELF, request(1), ierr)
    if (step == 3 .or. step == 5 .or. step == 6) call MPI_Isend(out, 1, MPI_INTEGER, 0, 0, MPI_COMM_SELF, request(2), ierr)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call system_clock(begin)
    select case (step)
    case (2)
      call MPI_Send(out, 1, MPI_INTEGER, 0, 0, MPI_COMM_SELF, ierr)
    case (3)
      call MPI_Recv(got, 1, MPI_INTEGER, 0, 0, MPI_COMM_SELF, status, ierr)
    case (4)
      call MPI_Sendrecv(out, 1, MPI_INTEGER, 0, 0, got, 1, MPI_INTEGER, 0, 0, MPI_COMM_SELF, status, ierr)
    case (5)
      call MPI_Wait(request(1), status, ierr)
    case (6)
      call MPI_Waitall(2, request, MPI_STATUSES_IGNORE, ierr)
    case (7)
      call MPI_Bcast(got, 1, MPI_INTEGER, 0, MPI_COMM_SELF, ierr)
    case (8)
      call MPI_Reduce(out, got, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_SELF, ierr)
    end select
    call system_clock(end)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    if (rank == 0) print '(a, a, i0)', trim(names(step)), ' ', end - begin
    if (step == 2) call MPI_Wait(request(1), status, ierr)
    if (step == 3 .or. step == 5) call MPI_Wait(request(2), status, ierr)
  end do
  call MPI_Finalize(ierr)
  if (got /= 1) stop 1
end program blocking
