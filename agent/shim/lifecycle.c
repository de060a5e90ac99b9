/* Wrappers of the functions that initialize and finalize MPI. */
#include "wrappers.h"

#define LIST(...) __VA_ARGS__

#define C_INITIALIZER(NAME, PARAMETERS, ...)                    \
    EXPORT int NAME PARAMETERS                                  \
    {                                                           \
        FORWARD(NAME, LIST PARAMETERS);                         \
        recorder_prepare();                                     \
        recorder_hide();                                        \
        int result = real(__VA_ARGS__);                         \
        recorder_show();                                        \
        if (result == 0)                                        \
            recorder_start(NULL, CALLER);                             \
        return result;                                          \
    }

#define FORTRAN_INITIALIZER(NAME, INSTEAD, PARAMETERS, ...)     \
    EXPORT void NAME PARAMETERS                                 \
    {                                                           \
        FORWARD_FORTRAN(NAME, INSTEAD, LIST PARAMETERS)         \
        recorder_prepare();                                     \
        recorder_hide();                                        \
        real(__VA_ARGS__);                                      \
        recorder_show();                                        \
        if (!ierror || *(const int *)ierror == 0)               \
            recorder_start(NULL, CALLER);                             \
    }

#define FORTRAN_INITIALIZERS(LOWER, UPPER, PARAMETERS, ...)                                     \
    FORTRAN_INITIALIZER(mpi_##LOWER##_, NULL, PARAMETERS, __VA_ARGS__)                          \
    FORTRAN_INITIALIZER(mpi_##LOWER##__, "mpi_" #LOWER "_", PARAMETERS, __VA_ARGS__)            \
    FORTRAN_INITIALIZER(MPI_##UPPER, "mpi_" #LOWER "_", PARAMETERS, __VA_ARGS__)                \
    FORTRAN_INITIALIZER(mpi_##LOWER##_f08_, NULL, PARAMETERS, __VA_ARGS__)

C_INITIALIZER(MPI_Init, (word argc, word argv), argc, argv)
C_INITIALIZER(MPI_Init_thread, (word argc, word argv, word required, word provided), argc, argv, required, provided)
FORTRAN_INITIALIZERS(init, INIT, (word ierror), ierror)
FORTRAN_INITIALIZERS(init_thread, INIT_THREAD, (word required, word provided, word ierror), required, provided, ierror)

EXPORT int MPI_Session_init(word info, word errhandler, word session)
{
    FORWARD(MPI_Session_init, word, word, word);
    recorder_prepare();
    recorder_hide();
    int result = real(info, errhandler, session);
    recorder_show();
    if (result == 0)
        recorder_start((const void *)session, CALLER);
    return result;
}

EXPORT int MPI_Session_finalize(word session)
{
    FORWARD(MPI_Session_finalize, word);
    recorder_finish();
    recorder_hide();
    int result = real(session);
    recorder_show();
    return result;
}

/* Collectives called by callbacks in MPI_Finalize are not counted: the recording has ended. */
EXPORT int MPI_Finalize(void)
{
    FORWARD(MPI_Finalize, void);
    recorder_finish();
    recorder_hide();
    int result = real();
    recorder_show();
    return result;
}

#define FORTRAN_FINALIZER(NAME, INSTEAD)                        \
    EXPORT void NAME(word ierror)                               \
    {                                                           \
        FORWARD_FORTRAN(NAME, INSTEAD, word)                    \
        recorder_finish();                                      \
        recorder_hide();                                        \
        real(ierror);                                           \
        recorder_show();                                        \
    }

FORTRAN_FINALIZER(mpi_finalize_, NULL)
FORTRAN_FINALIZER(mpi_finalize__, "mpi_finalize_")
FORTRAN_FINALIZER(MPI_FINALIZE, "mpi_finalize_")
FORTRAN_FINALIZER(mpi_finalize_f08_, NULL)
