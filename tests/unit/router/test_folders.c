/* SPDX-License-Identifier: BSD-3-Clause */
/* Which runtime folders go: those of dead routers, and no others. */
#include "start/folders.h"

#include <CUnit/Basic.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kvr_test.h"

static char base[] = "/tmp/kvroute-folders-XXXXXX";

/* Not called here. */
const char *rte_eal_get_runtime_dir(void);
const char *rte_eal_get_runtime_dir(void)
{
	return base;
}

static const char *make_path(const char *folder, const char *file)
{
	static char path[2][200];
	static int i;

	i = !i;
	snprintf(path[i], sizeof(path[i]), "%s/%s%s%s", base, folder, file[0] != '\0' ? "/" : "",
		 file);
	return path[i];
}

static void put_file(const char *folder, const char *file)
{
	const int fd = open(make_path(folder, file), O_RDWR | O_CREAT, 0600);

	CU_ASSERT_TRUE_FATAL(fd >= 0);
	close(fd);
}

static void make_folder(const char *folder, bool ours)
{
	CU_ASSERT_EQUAL_FATAL(mkdir(make_path(folder, ""), 0700), 0);
	put_file(folder, "config");
	put_file(folder, "fbarray_memzone");
	if (ours)
		put_file(folder, FOLDERS_MARK);
}

static bool folder_exists(const char *folder)
{
	return access(make_path(folder, ""), F_OK) == 0;
}

/* Another process that lives in a folder: it holds the mark, or only the EAL's lock. */
static pid_t live_in(const char *folder, bool marked)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int pipes[2];
	char c;
	pid_t pid;

	CU_ASSERT_EQUAL_FATAL(pipe(pipes), 0);
	pid = fork();
	if (pid == 0) {
		const int fd = open(make_path(folder, "config"), O_RDWR);
		const bool ok = marked ? folders_claim(make_path(folder, "")) >= 0
				       : fcntl(fd, F_SETLK, &lock) == 0;

		if (!ok || write(pipes[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(pipes[1]);
	CU_ASSERT_EQUAL(read(pipes[0], &c, 1), 1);
	close(pipes[0]);
	return pid;
}

static void end_process(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void only_folders_of_dead_routers_go(void)
{
	pid_t a, b;

	make_folder("dead", true);
	make_folder("own", true);
	make_folder("other", false); /* another program's, dead or not */
	make_folder("marked", true);
	make_folder("starting", true);
	CU_ASSERT_EQUAL(symlink("other", make_path("link", "")), 0);
	put_file(".", "file");
	a = live_in("marked", true);
	b = live_in("starting", false);
	CU_ASSERT_EQUAL(folders_claim(make_path("marked", "")), -EWOULDBLOCK);
	CU_ASSERT_EQUAL(folders_sweep(base, "own", 10), 1);
	CU_ASSERT(!folder_exists("dead") && folder_exists("own") && folder_exists("other") &&
		  folder_exists("link"));
	CU_ASSERT(folder_exists("marked") && folder_exists("starting") && folder_exists("file"));
	CU_ASSERT_EQUAL(access(make_path("marked", "fbarray_memzone"), F_OK), 0);
	end_process(a); /* killed: its locks go with it */
	end_process(b);
	CU_ASSERT_EQUAL(folders_sweep(base, "own", 1), 1); /* as many as wanted */
	CU_ASSERT_EQUAL(folders_sweep(base, "own", 10), 1);
	CU_ASSERT(!folder_exists("marked") && !folder_exists("starting") && folder_exists("other"));
	CU_ASSERT_EQUAL(folders_sweep(base, NULL, 10), 1);
	CU_ASSERT_EQUAL(folders_sweep("/nowhere/at/all", NULL, 10), 0);
	unlink(make_path("link", ""));
	unlink(make_path("file", ""));
	unlink(make_path("other", "config"));
	unlink(make_path("other", "fbarray_memzone"));
	rmdir(make_path("other", ""));
	CU_ASSERT_EQUAL(rmdir(base), 0); /* nothing else was left or made */
}

/* Else two routers had one folder, and the first to end took the other's socket with it. */
static void a_folder_of_a_living_router_is_not_held(void)
{
	const char *dpdk = geteuid() == 0 ? "/var/run/dpdk" : make_path("dpdk", "");
	char prefix[40], path[200];
	int fd;

	setenv("XDG_RUNTIME_DIR", base, 1);
	CU_ASSERT(mkdir(dpdk, 0755) == 0 || errno == EEXIST);
	snprintf(prefix, sizeof(prefix), "kvr-folders-%d", (int)getpid());
	snprintf(path, sizeof(path), "%s/%s", dpdk, prefix);
	CU_ASSERT_EQUAL(folders_hold(prefix), 0); /* there is none: the EAL will make it */
	CU_ASSERT_EQUAL_FATAL(mkdir(path, 0700), 0);
	fd = folders_claim(path);
	CU_ASSERT_TRUE_FATAL(fd >= 0);
	CU_ASSERT_EQUAL(folders_hold(prefix), -EBUSY);
	close(fd);
	CU_ASSERT_EQUAL(folders_hold(prefix), 0);
	folders_stop();
	CU_ASSERT(access(path, F_OK) < 0);
	rmdir(make_path("dpdk", ""));
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(a_folder_of_a_living_router_is_not_held),
		KVR_CASE(only_folders_of_dead_routers_go),
		CU_TEST_INFO_NULL,
	};

	if (mkdtemp(base) == NULL)
		return 1;
	return kvr_test_run("folders", tests);
}
