// What a mutex guards and who has to hold it, for clang to check where it compiles
// (-Wthread-safety, in builds with clang); nothing elsewhere. On members and functions of classes
// whose mutex is a base/mutex.h:
//   GUARDED_BY(mutex_)  a member that is only touched by who holds it
//   REQUIRES(mutex_)    a function that is called by who holds it
//   EXCLUDES(mutex_)    a function that takes it, so that callers must not hold it
#pragma once

#if defined(__clang__)
#define ATOM_ANNOTATE(x) __attribute__((x))
#else
#define ATOM_ANNOTATE(x)
#endif

#define GUARDED_BY(mutex) ATOM_ANNOTATE(guarded_by(mutex))
#define REQUIRES(...) ATOM_ANNOTATE(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) ATOM_ANNOTATE(locks_excluded(__VA_ARGS__))

// For base/mutex.h alone.
#define ATOM_CAPABILITY(name) ATOM_ANNOTATE(capability(name))
#define ATOM_SCOPED_CAPABILITY ATOM_ANNOTATE(scoped_lockable)
#define ATOM_ACQUIRE(...) ATOM_ANNOTATE(acquire_capability(__VA_ARGS__))
#define ATOM_RELEASE(...) ATOM_ANNOTATE(release_capability(__VA_ARGS__))
#define ATOM_TRY_ACQUIRE(...) ATOM_ANNOTATE(try_acquire_capability(__VA_ARGS__))
