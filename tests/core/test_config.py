import subprocess
import sys

import pytest

from rankscope.core import Config, InputError


class Small(Config):
    tokens: int = 4
    noise: float = 0.1


def test_unknown_field_names_the_nearest():
    with pytest.raises(InputError, match=r"Small has no field 'token'\. Did you mean 'tokens'\?"):
        Small(token=3)


def test_wrong_type_is_an_error_not_a_conversion():
    with pytest.raises(InputError, match=r"Small\.tokens: .*integer.*\(got '3'\)"):
        Small(tokens="3")


def test_frozen_and_hashable():
    config = Small()
    with pytest.raises(Exception, match="frozen"):
        config.tokens = 5
    assert hash(config) == hash(Small())


def test_replace_validates_again():
    assert Small().replace(tokens=9).tokens == 9
    with pytest.raises(InputError, match="Did you mean"):
        Small().replace(tokenz=9)


def test_digest_is_the_same_in_another_process():
    code = (
        "from rankscope.core import Config\n"
        "class Small(Config):\n    tokens: int = 4\n    noise: float = 0.1\n"
        "print(Small().digest())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert other.strip() == Small().digest() != Small(tokens=5).digest()
