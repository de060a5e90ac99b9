! Images that write to each other's coarray in each iteration, and wait for all, or for their neighbours.
! Arguments: all or images, iterations, microseconds of work in each.
program coarray
  use iso_fortran_env, only: int64, real64
  implicit none
  integer :: x[*], iterations, microseconds, i, next, before
  integer(int64) :: start, now, rate
  character(16) :: form, word
  call get_command_argument(1, form)
  call get_command_argument(2, word)
  read (word, *) iterations
  call get_command_argument(3, word)
  read (word, *) microseconds
  next = mod(this_image(), num_images()) + 1
  before = mod(this_image() + num_images() - 2, num_images()) + 1
  call system_clock(count_rate=rate)
  sync all
  do i = 1, iterations
    call system_clock(start)
    do
      call system_clock(now)
      if (real(now - start, real64) * 1e6 >= real(microseconds, real64) * rate) exit
    end do
    x[next] = i
    if (form == "coarray-all") then
      sync all
    else if (next == before) then
      sync images(next)
    else
      sync images([next, before])
    end if
  end do
  if (this_image() == 1) print "(a, i0)", "iterations ", iterations
end program
