/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files of routers: real files in a folder of the world, behind the file interface of snapshots.
 * Reads and writes fail, are short or flip bits. The file of a dead router may be truncated or
 * replaced by an older one. disk_run() stands in for the snapshot thread.
 */
#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/snapshot.h"

static char folder[64];	   /* "": none */
static struct host *owner; /* router whose files are accessed */

static bool goes_wrong(void)
{
	return sim_faults(owner->sim) && sim_chance(&owner->rand, owner->sim->plan.bad_files);
}

static int fail_call(int error)
{
	sim_bug(SIM_BUG_FULL);
	errno = error;
	return -1;
}

static int disk_os_open(const char *path, int flags, mode_t mode)
{
	return goes_wrong() ? fail_call(EACCES) : open(path, flags, mode);
}

static ssize_t disk_os_write(int fd, const void *p, size_t n)
{
	if (goes_wrong())
		return fail_call(ENOSPC);
	return write(fd, p, goes_wrong() ? n / 2 + 1 : n);
}

static ssize_t disk_os_read(int fd, void *p, size_t n)
{
	const ssize_t got = read(fd, p, n);

	if (got > 0 && goes_wrong()) {
		((uint8_t *)p)[kvr_rand_below(&owner->rand, (uint32_t)got)] ^=
			(uint8_t)(1 << kvr_rand_below(&owner->rand, 8));
		sim_bug(SIM_BUG_FLIPPED);
	}
	return got;
}

static int disk_os_fsync(int fd)
{
	RTE_SET_USED(fd); /* disk_left() simulates the loss of unsynced data */
	return goes_wrong() ? fail_call(EIO) : 0;
}

static int disk_os_rename(const char *from, const char *to)
{
	return goes_wrong() ? fail_call(EIO) : rename(from, to);
}

static const struct kvr_snap_os files = {disk_os_open, disk_os_write, disk_os_read, disk_os_fsync,
					 disk_os_rename};

/* ---- the folder ---- */

static void path_of(const struct host *h, const char *end, char *path, size_t len)
{
	snprintf(path, len, "%s/r%u.snapshot%s", folder, h->no, end);
}

int disk_begin(struct sim *s)
{
	folder[0] = '\0';
	if (s->plan.warm == 0)
		return 0;
	strcpy(folder,
	       access("/dev/shm", W_OK) == 0 ? "/dev/shm/kvr-sim-XXXXXX" : "/tmp/kvr-sim-XXXXXX");
	return mkdtemp(folder) != NULL ? 0 : -errno;
}

void disk_end(struct sim *s)
{
	char path[128];

	for (uint32_t i = 0; i < SIM_ROUTERS; i++) {
		free(s->host[i].older);
		s->host[i].older = NULL;
		if (folder[0] == '\0')
			continue;
		path_of(&s->host[i], "", path, sizeof(path));
		unlink(path);
		path_of(&s->host[i], ".new", path, sizeof(path));
		unlink(path);
	}
	if (folder[0] != '\0')
		rmdir(folder);
	folder[0] = '\0';
}

int disk_text(const struct host *h, char *text, size_t len)
{
	if (h->sim->plan.warm == 0)
		return 0;
	return snprintf(text, len, "state_dir = %s\nfile_prefix = r%u\nsnapshot_s = 1\n", folder,
			h->no);
}

/* ---- files of a router ---- */

uint64_t disk_bytes(const struct host *h)
{
	char path[128];
	struct stat st;

	path_of(h, "", path, sizeof(path));
	return folder[0] != '\0' && stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

int disk_open(struct host *h, char *err, size_t errlen)
{
	int rc;

	if (h->sim->plan.warm == 0)
		return 0;
	owner = h;
	h->rig.rt->files = &files;
	rc = snapshot_open(h->rig.rt, err, errlen);
	if (rc == 0)
		h->rig.rt->snapshot->threaded = true; /* disk_run() stands in for the thread */
	return rc;
}

void disk_run(struct host *h)
{
	struct memory *was;

	if (h->rig.rt->snapshot == NULL)
		return;
	owner = h;
	was = memory_of(NULL); /* the buffers of a snapshot exist only during its write */
	snapshot_serve(h->rig.rt);
	memory_of(was);
}

void disk_close(struct host *h)
{
	struct snapshot *p = h->rig.rt->snapshot;

	if (p == NULL)
		return;
	for (uint64_t i = 0; i < p->stat.restored; i++)
		sim_bug(SIM_BUG_WARM);
	snapshot_close(h->rig.rt);
}

static uint8_t *read_file(const char *path, size_t *len)
{
	FILE *f = fopen(path, "rb");
	uint8_t *p = NULL;
	long n = 0;

	if (f != NULL && fseek(f, 0, SEEK_END) == 0 && (n = ftell(f)) > 0)
		p = malloc((size_t)n);
	if (p != NULL) {
		rewind(f);
		n = (long)fread(p, 1, (size_t)n, f);
	}
	if (f != NULL)
		fclose(f);
	*len = p != NULL ? (size_t)n : 0;
	return p;
}

static void write_file(const char *path, const uint8_t *p, size_t n)
{
	FILE *f = fopen(path, "wb");

	if (f == NULL)
		return;
	if (fwrite(p, 1, n, f) != n)
		sim_log(owner->sim, "cannot write all of %s", path);
	fclose(f);
}

void disk_left(struct host *h)
{
	uint8_t *now;
	char path[128];
	size_t len;

	if (h->sim->plan.warm == 0 || h->sim->plan.bad_files == 0 || !sim_faults(h->sim))
		return;
	owner = h;
	path_of(h, "", path, sizeof(path));
	now = read_file(path, &len);
	if (now == NULL)
		return;
	switch (kvr_rand_below(&h->rand, 4)) {
	case 0:
		if (h->older != NULL) {
			write_file(path, h->older, h->older_len);
			sim_bug(SIM_BUG_OLDER);
		}
		break;
	case 1:
		write_file(path, now, kvr_rand_below(&h->rand, (uint32_t)len));
		sim_bug(SIM_BUG_TORN);
		break;
	default:
		break;
	}
	if (h->older == NULL || kvr_rand_below(&h->rand, 2) == 0) {
		free(h->older);
		h->older = now;
		h->older_len = len;
	} else {
		free(now);
	}
}
