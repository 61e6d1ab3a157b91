"""Write the files of forms that are new or have got a field: ``python -m tests.golden.add``. Nothing is ever overwritten."""

import sys

import msgspec

from tests.golden.forms import FOLDER, forms, read, written


def main() -> int:
    """Add what is missing, print what was added, and return 0."""
    for form in forms():
        files = form.files()
        sample = form.sample()
        if files and read(files[-1])[0] == msgspec.msgpack.encode(sample):
            continue
        number = int(files[-1].suffixes[-2][1:]) + 1 if files else 1
        path = FOLDER / f"{form.name}.{number}.txt"
        path.parent.mkdir(exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(written(sample))
        print(f"added {path.relative_to(FOLDER)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
