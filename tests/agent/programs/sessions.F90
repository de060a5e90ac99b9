! A session without MPI_Init, in the binding of BINDING (2 is `use mpi`, 3 `use mpi_f08`): a communicator of all processes
! makes 2 barriers, an Allreduce and a barrier.
program sessions
#if BINDING == 3
  use mpi_f08
  implicit none
  type(MPI_Session) :: session
  type(MPI_Group) :: group
  type(MPI_Comm) :: all
#else
  use mpi
  implicit none
  integer :: session, group, all
#endif
  integer :: error, total, one = 1

  call MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, session, error)
  call MPI_Group_from_session_pset(session, "mpi://WORLD", group, error)
  call MPI_Comm_create_from_group(group, "barograph", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, all, error)
  call MPI_Group_free(group, error)
  call MPI_Barrier(all, error)
  call MPI_Barrier(all, error)
  call MPI_Allreduce(one, total, 1, MPI_INTEGER, MPI_SUM, all, error)
  call MPI_Barrier(all, error)
  call MPI_Comm_free(all, error)
  call MPI_Session_finalize(session, error)
  print '(a,i0)', "total=", total
end program
