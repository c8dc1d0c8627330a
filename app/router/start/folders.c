/* SPDX-License-Identifier: BSD-3-Clause */
/* The runtime folder of this process, and removal of those of dead routers. */
#include "start/folders.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <rte_eal.h>

/* The folder may be in the process of removal, or a killed router releases its memory before its
 * locks: half a second, more on a busy machine. */
#define HOLD_TRIES 200

static int mark = -1;	   /* lock file of the own folder */
static char own[PATH_MAX]; /* its path */

static int claim_at(int folder, int flags)
{
	const int fd = openat(folder, FOLDERS_MARK, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
	int rc;

	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return fd;
	rc = -errno;
	close(fd);
	return rc;
}

int folders_claim(const char *folder)
{
	const int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int fd;

	if (dir < 0)
		return -errno;
	fd = claim_at(dir, O_CREAT);
	close(dir);
	return fd;
}

/* Whether an EAL holds its configuration lock: a process that started but has not locked its mark
 * yet. */
static bool eal_lives(int folder)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	const int fd = openat(folder, "config", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	bool lives;

	if (fd < 0)
		return errno != ENOENT;
	lives = fcntl(fd, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
	close(fd);
	return lives;
}

/* Remove the files of the folder, the mark last, so that a new process finds it locked. */
static void empty_folder(int folder)
{
	DIR *d = fdopendir(dup(folder));
	const struct dirent *e;

	while (d != NULL && (e = readdir(d)) != NULL)
		if (e->d_name[0] != '.' && strcmp(e->d_name, FOLDERS_MARK) != 0)
			unlinkat(folder, e->d_name, 0);
	if (d != NULL)
		closedir(d);
	unlinkat(folder, FOLDERS_MARK, 0);
}

/* Remove @p name in @p base if it belongs to a dead router. */
static bool remove_dead(int base, const char *name)
{
	const int folder = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	bool gone = false;
	int fd = -1;

	if (folder < 0)
		return false;
	if (fstat(folder, &st) == 0 && st.st_uid == geteuid())
		fd = claim_at(folder, 0);
	if (fd >= 0 && !eal_lives(folder)) {
		empty_folder(folder);
		gone = unlinkat(base, name, AT_REMOVEDIR) == 0;
	}
	if (fd >= 0)
		close(fd);
	close(folder);
	return gone;
}

uint32_t folders_sweep(const char *base, const char *but, uint32_t most)
{
	DIR *d = opendir(base);
	const struct dirent *e;
	uint32_t n = 0;

	while (d != NULL && n < most && (e = readdir(d)) != NULL)
		if (e->d_name[0] != '.' && (but == NULL || strcmp(e->d_name, but) != 0))
			n += remove_dead(dirfd(d), e->d_name);
	if (d != NULL)
		closedir(d);
	return n;
}

int folders_hold(const char *file_prefix)
{
	const char *user = getenv("XDG_RUNTIME_DIR");
	const struct timespec moment = {0, 10000000};

	/* the folder that the EAL will use */
	if (geteuid() == 0)
		snprintf(own, sizeof(own), "/var/run/dpdk/%s", file_prefix);
	else
		snprintf(own, sizeof(own), "%s/dpdk/%s", user != NULL ? user : "/tmp", file_prefix);
	for (int i = 0; i < HOLD_TRIES; i++) {
		mark = folders_claim(own);
		if (mark != -EWOULDBLOCK)
			return 0;
		nanosleep(&moment, NULL);
	}
	return -EBUSY;
}

uint32_t folders_start(void)
{
	char base[PATH_MAX];
	char *name;
	int anew;

	snprintf(own, sizeof(own), "%s", rte_eal_get_runtime_dir());
	anew = folders_claim(own); /* fails if this process holds it already */
	if (anew >= 0 && mark >= 0)
		close(mark); /* of a folder that was removed in the meantime */
	mark = anew >= 0 ? anew : mark;
	snprintf(base, sizeof(base), "%s", own);
	name = strrchr(base, '/');
	if (mark < 0 || name == NULL || name == base)
		return 0;
	*name = '\0';
	return folders_sweep(base, name + 1, FOLDERS_MOST);
}

void folders_stop(void)
{
	const int folder = open(own, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (mark >= 0 && folder >= 0) {
		empty_folder(folder);
		rmdir(own);
	}
	if (folder >= 0)
		close(folder);
	if (mark >= 0)
		close(mark);
	mark = -1;
}
