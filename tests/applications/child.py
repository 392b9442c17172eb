import multiprocessing
import subprocess
import sys


def work() -> None:
    print("generated elsewhere", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "python":
        subprocess.run([sys.executable, "-c", "print('generated elsewhere')"], check=True)
    else:
        process = multiprocessing.get_context("spawn").Process(target=work)
        process.start()
        process.join()
        sys.exit(process.exitcode)
