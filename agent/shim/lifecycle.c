/* Wrappers of the functions that initialize and finalize MPI. */
#include "wrappers.h"

#define LIST(...) __VA_ARGS__

/* SESSION: the address of the handle, NULL for MPI_Init. */
#define C_INITIALIZER(NAME, SESSION, PARAMETERS, ...)           \
    EXPORT int NAME PARAMETERS                                  \
    {                                                           \
        FORWARD(NAME, LIST PARAMETERS);                         \
        recorder_prepare();                                     \
        recorder_hide();                                        \
        int result = real(__VA_ARGS__);                         \
        recorder_show();                                        \
        if (result == 0)                                        \
            recorder_start((const void *)SESSION, CALLER);      \
        return result;                                          \
    }

/* `session` is the address of Fortran's handle, 0 for MPI_Init. MPICH's are those of C, and it has no function for it. */
static void start_in_fortran(word session, const void *caller)
{
    if (!session) {
        recorder_start(NULL, caller);
        return;
    }
    word (*f2c)(int) = resolve_function("PMPI_Session_f2c", caller);
    int number = *(const int *)session;
    word handle = f2c ? f2c(number) : (word)(unsigned)number;
    recorder_start(&handle, caller);
}

#define FORTRAN_INITIALIZER(NAME, INSTEAD, SESSION, PARAMETERS, ...)    \
    EXPORT void NAME PARAMETERS                                         \
    {                                                                   \
        FORWARD_FORTRAN(NAME, INSTEAD, LIST PARAMETERS)                 \
        recorder_prepare();                                             \
        recorder_hide();                                                \
        real(__VA_ARGS__);                                              \
        recorder_show();                                                \
        if (!ierror || *(const int *)ierror == 0)                       \
            start_in_fortran(SESSION, CALLER);                          \
    }

#define FORTRAN_INITIALIZERS(LOWER, UPPER, SESSION, PARAMETERS, ...)                            \
    FORTRAN_INITIALIZER(mpi_##LOWER##_, NULL, SESSION, PARAMETERS, __VA_ARGS__)                 \
    FORTRAN_INITIALIZER(mpi_##LOWER##__, "mpi_" #LOWER "_", SESSION, PARAMETERS, __VA_ARGS__)   \
    FORTRAN_INITIALIZER(MPI_##UPPER, "mpi_" #LOWER "_", SESSION, PARAMETERS, __VA_ARGS__)       \
    FORTRAN_INITIALIZER(mpi_##LOWER##_f08_, NULL, SESSION, PARAMETERS, __VA_ARGS__)

C_INITIALIZER(MPI_Init, NULL, (word argc, word argv), argc, argv)
C_INITIALIZER(MPI_Init_thread, NULL, (word argc, word argv, word required, word provided), argc, argv, required, provided)
C_INITIALIZER(MPI_Session_init, session, (word info, word errhandler, word session), info, errhandler, session)
FORTRAN_INITIALIZERS(init, INIT, 0, (word ierror), ierror)
FORTRAN_INITIALIZERS(init_thread, INIT_THREAD, 0, (word required, word provided, word ierror), required, provided, ierror)
FORTRAN_INITIALIZERS(session_init, SESSION_INIT, session, (word info, word errhandler, word session, word ierror), info,
                     errhandler, session, ierror)

/* Collectives called by callbacks in MPI_Finalize are not counted: the recording has ended. */
#define C_FINALIZER(NAME, PARAMETERS, ...)                      \
    EXPORT int NAME PARAMETERS                                  \
    {                                                           \
        FORWARD(NAME, LIST PARAMETERS);                         \
        recorder_finish();                                      \
        recorder_hide();                                        \
        int result = real(__VA_ARGS__);                         \
        recorder_show();                                        \
        return result;                                          \
    }

#define FORTRAN_FINALIZER(NAME, INSTEAD, PARAMETERS, ...)       \
    EXPORT void NAME PARAMETERS                                 \
    {                                                           \
        FORWARD_FORTRAN(NAME, INSTEAD, LIST PARAMETERS)         \
        recorder_finish();                                      \
        recorder_hide();                                        \
        real(__VA_ARGS__);                                      \
        recorder_show();                                        \
    }

#define FORTRAN_FINALIZERS(LOWER, UPPER, PARAMETERS, ...)                               \
    FORTRAN_FINALIZER(mpi_##LOWER##_, NULL, PARAMETERS, __VA_ARGS__)                    \
    FORTRAN_FINALIZER(mpi_##LOWER##__, "mpi_" #LOWER "_", PARAMETERS, __VA_ARGS__)      \
    FORTRAN_FINALIZER(MPI_##UPPER, "mpi_" #LOWER "_", PARAMETERS, __VA_ARGS__)          \
    FORTRAN_FINALIZER(mpi_##LOWER##_f08_, NULL, PARAMETERS, __VA_ARGS__)

C_FINALIZER(MPI_Finalize, (void))
C_FINALIZER(MPI_Session_finalize, (word session), session)
FORTRAN_FINALIZERS(finalize, FINALIZE, (word ierror), ierror)
FORTRAN_FINALIZERS(session_finalize, SESSION_FINALIZE, (word session, word ierror), session, ierror)
