/* SPDX-License-Identifier: BSD-3-Clause */
/* Records are collected in memory, so that adding one never waits for the disk. */
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
	int rc; /* first error */
	uint64_t bytes, records;
	XXH3_state_t *digest;
	uint8_t *buf;
	size_t len, cap;
	char path[PATH_MAX];
	char new_path[PATH_MAX];
};

/*
 * Open and lock the new file. If its writer renamed it between open and lock, the locked file is no
 * longer at that path. @return fd or -errno.
 */
static int open_new(const char *path, const struct kvr_snap_os *os)
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

static void free_writer(struct kvr_snap_writer *writer)
{
	if (writer->fd >= 0)
		close(writer->fd); /* also releases the lock */
	XXH3_freeState(writer->digest);
	free(writer->buf);
	free(writer);
}

static int append_bytes(struct kvr_snap_writer *writer, const void *p, size_t n)
{
	if (writer->cap - writer->len < n) {
		const size_t cap = (writer->len + n + GROW) / GROW * GROW;
		uint8_t *b = realloc(writer->buf, cap);

		if (b == NULL)
			return writer->rc = -ENOMEM;
		writer->buf = b;
		writer->cap = cap;
	}
	if (n != 0)
		memcpy(writer->buf + writer->len, p, n);
	writer->len += n;
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
	struct kvr_snap_writer *writer = calloc(1, sizeof(*writer));
	int rc;

	if (writer == NULL)
		return kvr_null(ENOMEM);
	writer->fd = -1;
	writer->os = os != NULL ? os : &kvr_snap_os;
	writer->digest = XXH3_createState();
	if (snprintf(writer->path, sizeof(writer->path), "%s", path) >= (int)sizeof(writer->path) ||
	    snprintf(writer->new_path, sizeof(writer->new_path), "%s.new", path) >=
		    (int)sizeof(writer->new_path))
		rc = -ENAMETOOLONG;
	else if (writer->digest == NULL || XXH3_64bits_reset(writer->digest) != XXH_OK)
		rc = -ENOMEM;
	else
		rc = writer->fd = open_new(writer->new_path, writer->os);
	if (rc >= 0)
		rc = append_bytes(writer, &head, sizeof(head));
	if (rc < 0) {
		free_writer(writer);
		return kvr_null(-rc);
	}
	return writer;
}

int kvr_snap_put(struct kvr_snap_writer *writer, enum kvr_snap_kind kind, const void *fixed,
		 size_t fixed_len, const void *more, size_t more_len)
{
	static const uint8_t zeros[8];
	const size_t n = fixed_len + more_len, fill = -n & 7;
	const struct snap_record record = {(uint32_t)kind, (uint32_t)(n + fill)};

	if (writer->rc < 0)
		return writer->rc;
	if (n > UINT32_MAX - 8)
		return writer->rc = -E2BIG;
	if (append_bytes(writer, &record, sizeof(record)) < 0 ||
	    append_bytes(writer, fixed, fixed_len) < 0 ||
	    append_bytes(writer, more, more_len) < 0 || append_bytes(writer, zeros, fill) < 0)
		return writer->rc;
	writer->records++;
	return 0;
}

size_t kvr_snap_pending(const struct kvr_snap_writer *writer)
{
	return writer->len;
}

static int write_all(struct kvr_snap_writer *writer, const uint8_t *p, size_t n)
{
	while (n > 0) {
		const ssize_t got = writer->os->write(writer->fd, p, n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return writer->rc = got < 0 ? -errno : -EIO;
		p += got;
		n -= (size_t)got;
	}
	return 0;
}

int kvr_snap_flush(struct kvr_snap_writer *writer)
{
	if (writer->rc < 0 || writer->len == 0)
		return writer->rc;
	XXH3_64bits_update(writer->digest, writer->buf, writer->len);
	writer->bytes += writer->len;
	if (write_all(writer, writer->buf, writer->len) < 0)
		return writer->rc;
	writer->len = 0;
	return 0;
}

/*
 * Flush the folder, so that the new name persists. Errors are ignored, as some file systems cannot
 * do this.
 */
static void sync_folder(const struct kvr_snap_writer *writer)
{
	char folder[PATH_MAX];
	char *slash;
	int fd;

	memcpy(folder, writer->path, sizeof(folder));
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

int kvr_snap_commit(struct kvr_snap_writer *writer, uint64_t *bytes)
{
	struct snap_tail tail = {.magic = SNAP_END};
	int rc = kvr_snap_flush(writer);

	if (rc == 0) {
		tail.bytes = writer->bytes;
		tail.records = writer->records;
		tail.digest = XXH3_64bits_digest(writer->digest);
		rc = write_all(writer, (const void *)&tail, sizeof(tail));
	}
	if (rc == 0 && writer->os->fsync(writer->fd) != 0)
		rc = -errno;
	if (rc == 0 && writer->os->rename(writer->new_path, writer->path) != 0)
		rc = -errno;
	if (rc < 0) {
		kvr_snap_abort(writer);
		return rc;
	}
	if (bytes != NULL)
		*bytes = writer->bytes + sizeof(tail);
	sync_folder(writer);
	free_writer(writer);
	return 0;
}

void kvr_snap_abort(struct kvr_snap_writer *writer)
{
	if (writer == NULL)
		return;
	(void)unlink(writer->new_path); /* under the lock, so no other writer owns it */
	free_writer(writer);
}
