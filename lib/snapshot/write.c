/* SPDX-License-Identifier: BSD-3-Clause */
/* Records gather in memory, so that who gives them never waits for the disk. */
#include "snapshot_pvt.h"

#include "kvr_errno.h"
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#define GROW ((size_t)1 << 20)

static int os_open(const char *path, int flags, mode_t mode)
{
	return open(path, flags, mode);
}

const struct kvr_snap_os kvr_snap_os = {os_open, write, read, fsync, rename};

struct kvr_snap_writer {
	const struct kvr_snap_os *os;
	int fd;
	int rc; /* the first failure */
	uint64_t bytes, records;
	XXH3_state_t *digest;
	uint8_t *buf;
	size_t len, cap;
	char path[PATH_MAX];
	char beside[PATH_MAX];
};

/* The file beside the old one, locked. It may be renamed by its writer between open and lock: then
 * what is locked is no more at that path. @return fd or -errno. */
static int open_beside(const char *path, const struct kvr_snap_os *os)
{
	const int fd = os->open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct stat mine, there;
	int rc = 0;

	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) != 0)
		rc = errno == EWOULDBLOCK ? -EBUSY : -errno;
	else if (fstat(fd, &mine) != 0 || stat(path, &there) != 0 || mine.st_ino != there.st_ino)
		rc = -EBUSY;
	else if (ftruncate(fd, 0) != 0)
		rc = -errno;
	if (rc < 0)
		close(fd);
	return rc < 0 ? rc : fd;
}

static void release(struct kvr_snap_writer *w)
{
	if (w->fd >= 0)
		close(w->fd); /* with it goes the lock */
	XXH3_freeState(w->digest);
	free(w->buf);
	free(w);
}

static int add(struct kvr_snap_writer *w, const void *p, size_t n)
{
	if (w->cap - w->len < n) {
		const size_t cap = (w->len + n + GROW) / GROW * GROW;
		uint8_t *b = realloc(w->buf, cap);

		if (b == NULL)
			return w->rc = -ENOMEM;
		w->buf = b;
		w->cap = cap;
	}
	if (n != 0)
		memcpy(w->buf + w->len, p, n);
	w->len += n;
	return 0;
}

struct kvr_snap_writer *kvr_snap_begin(const char *path, const struct kvr_snap_shape *shape,
				       const struct kvr_snap_about *about,
				       const struct kvr_snap_os *os)
{
	const struct snap_head head = {.magic = SNAP_MAGIC,
				       .version = KVR_SNAP_VERSION,
				       .bytes = sizeof(head),
				       .shape = *shape,
				       .made_ms = about->made_ms,
				       .secret = about->secret,
				       .epoch = about->epoch};
	struct kvr_snap_writer *w = calloc(1, sizeof(*w));
	int rc;

	if (w == NULL)
		return kvr_null(ENOMEM);
	w->fd = -1;
	w->os = os != NULL ? os : &kvr_snap_os;
	w->digest = XXH3_createState();
	if (snprintf(w->path, sizeof(w->path), "%s", path) >= (int)sizeof(w->path) ||
	    snprintf(w->beside, sizeof(w->beside), "%s.new", path) >= (int)sizeof(w->beside))
		rc = -ENAMETOOLONG;
	else if (w->digest == NULL || XXH3_64bits_reset(w->digest) != XXH_OK)
		rc = -ENOMEM;
	else
		rc = w->fd = open_beside(w->beside, w->os);
	if (rc >= 0)
		rc = add(w, &head, sizeof(head));
	if (rc < 0) {
		release(w);
		return kvr_null(-rc);
	}
	return w;
}

int kvr_snap_put(struct kvr_snap_writer *w, enum kvr_snap_kind kind, const void *fixed,
		 size_t fixed_len, const void *more, size_t more_len)
{
	static const uint8_t zeros[8];
	const size_t n = fixed_len + more_len, fill = -n & 7;
	const struct snap_record r = {(uint32_t)kind, (uint32_t)(n + fill)};

	if (w->rc < 0)
		return w->rc;
	if (n > UINT32_MAX - 8)
		return w->rc = -E2BIG;
	if (add(w, &r, sizeof(r)) < 0 || add(w, fixed, fixed_len) < 0 ||
	    add(w, more, more_len) < 0 || add(w, zeros, fill) < 0)
		return w->rc;
	w->records++;
	return 0;
}

size_t kvr_snap_pending(const struct kvr_snap_writer *w)
{
	return w->len;
}

static int write_all(struct kvr_snap_writer *w, const uint8_t *p, size_t n)
{
	while (n > 0) {
		const ssize_t got = w->os->write(w->fd, p, n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return w->rc = got < 0 ? -errno : -EIO;
		p += got;
		n -= (size_t)got;
	}
	return 0;
}

int kvr_snap_flush(struct kvr_snap_writer *w)
{
	if (w->rc < 0 || w->len == 0)
		return w->rc;
	XXH3_64bits_update(w->digest, w->buf, w->len);
	w->bytes += w->len;
	if (write_all(w, w->buf, w->len) < 0)
		return w->rc;
	w->len = 0;
	return 0;
}

/* A name lasts when its folder is on the disk. Some file systems cannot do that: no matter. */
static void sync_folder(const struct kvr_snap_writer *w)
{
	char folder[PATH_MAX];
	char *slash;
	int fd;

	memcpy(folder, w->path, sizeof(folder));
	slash = strrchr(folder, '/');
	if (slash == NULL)
		memcpy(folder, ".", 2);
	else
		slash[slash == folder] = '\0';
	fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return;
	(void)fsync(fd);
	close(fd);
}

int kvr_snap_commit(struct kvr_snap_writer *w, uint64_t *bytes)
{
	struct snap_tail tail = {.magic = SNAP_END};
	int rc = kvr_snap_flush(w);

	if (rc == 0) {
		tail.bytes = w->bytes;
		tail.records = w->records;
		tail.digest = XXH3_64bits_digest(w->digest);
		rc = write_all(w, (const void *)&tail, sizeof(tail));
	}
	if (rc == 0 && w->os->fsync(w->fd) != 0)
		rc = -errno;
	if (rc == 0 && w->os->rename(w->beside, w->path) != 0)
		rc = -errno;
	if (rc < 0) {
		kvr_snap_abort(w);
		return rc;
	}
	if (bytes != NULL)
		*bytes = w->bytes + sizeof(tail);
	sync_folder(w);
	release(w);
	return 0;
}

void kvr_snap_abort(struct kvr_snap_writer *w)
{
	if (w == NULL)
		return;
	(void)unlink(w->beside); /* while it is locked: it is no one else's */
	release(w);
}
