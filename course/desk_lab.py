"""JupyterLab as the desk starts it: `python -m course.desk_lab`.

1.4 s sooner, without questions about news and updates (which would be asked on the internet), and
without nbgrader's panel in which an instructor marks cells.
"""

import os
from pathlib import Path

from course.startup import put_off_addresses

SETTINGS = Path(__file__).with_name("jupyter")

if __name__ == "__main__":
    put_off_addresses()
    own = os.environ.get("JUPYTER_CONFIG_PATH")
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join([str(SETTINGS), *([own] if own else [])])
    from jupyterlab.labapp import main

    main()
